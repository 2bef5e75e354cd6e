"""What can go wrong with AWS, as the call, the object, the cause and a next step."""

from collections.abc import Mapping

MOST_CHARACTERS = 300
THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "TooManyRequestsException",
        "PriorRequestNotComplete",
        "SlowDown",
    }
)
ABSENT = frozenset({"NoSuchEntity", "ResourceNotFoundException"})
PRESENT = frozenset({"EntityAlreadyExists", "ResourceInUseException"})
SIGNED = ("SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature")
"""Codes whose messages repeat the request, with what must not be shown."""
REMEDIES: Mapping[str, str] = {
    "AccessDenied": "permit the call in IAM, as docs/aws.md lists it",
    "AccessDeniedException": "permit the call in IAM, as docs/aws.md lists it",
    "ExpiredToken": "the credentials have ended; check what renews them",
    "ExpiredTokenException": "the credentials have ended; check what renews them",
    "InvalidIdentityToken": (
        "check the OIDC provider of the cluster and the trust policy of the role"
    ),
    "InvalidClientTokenId": "the credentials are not of this partition, or were deleted",
    "UnrecognizedClientException": "the credentials are not of this partition, or were deleted",
    "RequestExpired": "set the clock right",
    "DeleteConflict": "detach the policies that another tool attached to the role",
    "LimitExceeded": "raise the quota in AWS, or remove roles that are not used",
    "ServiceQuotaExceededException": "raise the quota in AWS, or remove what is not used",
    "ResourceLimitExceededException": "raise the quota in AWS, or remove what is not used",
    "InvalidRequestException": (
        "the EKS cluster must have authentication mode API or API_AND_CONFIG_MAP"
    ),
}


class AwsError(Exception):
    """A call of AWS did not do what it should."""

    def __init__(self, call: str, code: str, message: str, *, remedy: str = "") -> None:
        self.call = call
        """What was called, and for what: `IAM CreateRole of role r`."""
        self.code = code
        """The error code of AWS; empty when there was no answer."""
        text = "" if code in SIGNED else " ".join(message.split())[:MOST_CHARACTERS]
        if code in SIGNED:
            remedy = "the secret key is not that of the access key, or the clock is off"
        said = ": ".join(each for each in (code, text) if each)
        hint = remedy or REMEDIES.get(code, "")
        super().__init__(f"{call}: {said}" + (f"; {hint}" if hint else ""))

    @property
    def is_absent(self) -> bool:
        """Whether the object is not there."""
        return self.code in ABSENT

    @property
    def is_present(self) -> bool:
        """Whether the object is there already."""
        return self.code in PRESENT


class NoAwsCredentials(AwsError):
    """This process has no identity in AWS."""
