"""Why a release cannot be installed, as one small tree.

ReleaseError
├── NotEligible        the installed version cannot become the wanted one
├── NotAvailable       there is no such version, file or folder
├── BadManifest        a file is there, but is not what it should be
│   └── Tampered         it is not the file that the lock names
├── FetchFailed        a download failed; trying again later may help
└── FetchRefused       a download that is not allowed, or can never work
"""


class ReleaseError(Exception):
    """The requested release cannot be installed."""


class NotEligible(ReleaseError):
    """The installed version cannot be changed to the wanted one in one step."""


class NotAvailable(ReleaseError):
    """There is no such version, file or folder."""


class BadManifest(ReleaseError):
    """A manifest cannot be used as it is."""


class Tampered(BadManifest):
    """A file is not the one that was locked."""


class FetchFailed(ReleaseError):
    """A download failed; trying again later may help."""


class FetchRefused(ReleaseError):
    """A download is not allowed, or cannot work until the address changes."""
