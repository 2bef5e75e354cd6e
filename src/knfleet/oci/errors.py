"""Why images cannot be copied, as one small tree.

ImageError
├── BadReference       a text that names no image, or no registry
├── BadImage           a manifest, a blob or a layout is not what its digest or format says
├── MissingImage       a registry or a layout does not have it
├── RegistryRefused    the registry requires a login, or forbids what was asked
└── RegistryFailed     the registry failed or did not answer; trying again later may help
"""


class ImageError(Exception):
    """An image cannot be copied or checked."""


class BadReference(ImageError):
    """A text does not name an image or a registry."""


class BadImage(ImageError):
    """Something is there, but is not what it should be."""


class MissingImage(ImageError):
    """A registry or a layout does not have an image or a part of it."""


class RegistryRefused(ImageError):
    """A registry requires a login, or forbids what was asked."""


class RegistryFailed(ImageError):
    """A registry failed or did not answer; trying again later may help."""
