"""Everything that can go wrong between us and an API server, as one small tree.

KubeError
├── ApiError               the server answered, and said no (code, reason, object, retry-after)
│   ├── BadRequest           400
│   ├── Unauthorized         401
│   ├── Forbidden            403
│   ├── NotFound             404
│   ├── AlreadyExists        409, reason AlreadyExists
│   ├── Conflict             409, any other reason
│   ├── Expired              410
│   ├── Invalid              422
│   ├── Throttled            429
│   └── ServerError          5xx
├── NetworkError           no answer was had
│   ├── DnsFailed            the name does not resolve
│   ├── Refused              no process listens there, or there is no route
│   ├── Unanswered           the deadline passed
│   ├── TlsFailed            certificates do not fit
│   ├── ProxyFailed          the proxy refused or is not there
│   └── Interrupted          the connection ended in the middle of an answer
├── BadAnswer              an answer that is not Kubernetes' (HTML, half a line)
│   └── TooMuch              more than one server may send
├── CredentialError        no credential could be had (see `kube.execplugin`)
└── ConfigError            a kubeconfig or in-cluster configuration that cannot be used
"""


class KubeError(Exception):
    """The request did not do what it should."""


class NetworkError(KubeError):
    """No answer was had from the server."""


class DnsFailed(NetworkError):
    """The server's name does not resolve."""


class ConnectionRefused(NetworkError):
    """No process listens at the server's address, or there is no route to it."""


class RequestTimeout(NetworkError):
    """The server did not answer before the deadline."""


class TlsFailed(NetworkError):
    """The two sides' certificates do not fit."""


class ProxyFailed(NetworkError):
    """The proxy refused, or is not there."""


class ConnectionInterrupted(NetworkError):
    """The connection ended before the answer did."""


class BadResponse(KubeError):
    """The answer is not one that an API server gives."""


class ResponseTooLarge(BadResponse):
    """The server sent more than it may: in one answer, one list, or all together."""


class CredentialError(KubeError):
    """No credential could be had for the cluster."""


class ConfigError(KubeError):
    """A kubeconfig, or the in-cluster configuration, cannot be used."""


class ApiError(KubeError):
    """The server answered, and said no."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        where: str = "",
        retry_after_seconds: float | None = None,
        causes: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        """The server's own words."""
        self.code = code
        self.reason = reason
        self.where = where
        """What was asked, as `cluster: VERB path`."""
        self.retry_after_seconds = retry_after_seconds
        self.causes = causes
        """Field and message of each thing that the server found wrong."""


class BadRequest(ApiError):
    """The server could not make sense of the request."""


class Unauthorized(ApiError):
    """The server does not know who we are."""


class Forbidden(ApiError):
    """The server knows who we are, and that we may not do this."""


class NotFound(ApiError):
    """There is no such object, or no such kind."""


class AlreadyExists(ApiError):
    """An object of that name is there already."""


class Conflict(ApiError):
    """Another client changed the object, or owns the field."""


class Expired(ApiError):
    """The resource version or continue token is too old."""


class Invalid(ApiError):
    """The object does not pass validation."""


class Throttled(ApiError):
    """The server asks for patience."""


class ServerError(ApiError):
    """The server failed."""


BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: Throttled,
}


def error_type(code: int, reason: str) -> type[ApiError]:
    """The class for a status code and reason."""
    if reason == "AlreadyExists":
        return AlreadyExists
    if code >= 500:
        return ServerError
    return BY_CODE.get(code, ApiError)
