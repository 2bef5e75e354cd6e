"""The only code that talks to AWS: signatures, credentials, and calls of IAM, STS and EKS."""
