"""The add-on manager: installation, configuration, delivery, registration and state of add-ons."""
