"""The dashboard's server: listening, logins, sessions, authorization."""
