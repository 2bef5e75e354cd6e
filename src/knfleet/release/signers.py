"""Who signs the releases of Knative."""

IDENTITY = "signer@knative-releases.iam.gserviceaccount.com"
ISSUER = "https://accounts.google.com"
"""Who confirms that it is this account."""
