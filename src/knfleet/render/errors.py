"""Why a custom resource cannot be rendered.

RenderError              names the custom resource, the field or object, and what is wrong with it
├── BadField             a field of the custom resource has a value that cannot be used
└── BadObject            an object of the manifests has not the form of its kind
"""

from typing import Any

from knfleet.api.meta import Key


class RenderError(Exception):
    """The custom resource and the manifests do not give objects that could be applied."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        """The field or the object."""
        self.problem = problem
        """What is wrong, in upstream's words where it has words for it."""
        self.custom_resource = ""

    def about(self, kind: str, key: Key) -> "RenderError":
        """The same error, which now names the custom resource too."""
        self.custom_resource = f"{kind} {key}"
        self.args = (f"{self.custom_resource}: {self.where}: {self.problem}",)
        return self


class BadField(RenderError):
    """A field of the custom resource has a value that cannot be used."""

    def __init__(self, field: str, value: Any, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.value = value


class BadObject(RenderError):
    """An object of the manifests has not the form of its kind."""
