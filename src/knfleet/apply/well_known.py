"""Labels and annotations by which we know our own objects, and by which others know them."""

MANAGER = "knfleet"
"""The field manager of everything that we apply."""
PARENT_MANAGER = "knfleet-applyset"
"""The field manager of what we write on the parent of a set, whose other fields are not ours."""

PART_OF = "applyset.kubernetes.io/part-of"
SET_ID = "applyset.kubernetes.io/id"
TOOLING = "applyset.kubernetes.io/tooling"
CONTAINS = "applyset.kubernetes.io/contains-group-kinds"
ADDITIONAL_NAMESPACES = "applyset.kubernetes.io/additional-namespaces"

APPLIED_HASH = "knfleet.dev/applied-hash"
"""On a member: the hash of what was applied."""
CREATED_BY = "knfleet.dev/created-by"
"""On a Namespace: the set that created it, and so may delete it."""
SECOND_LOOK = "knfleet.dev/second-look"
"""On a parent: ClusterRoles that were deleted, and that the cluster may bring back."""
PROVIDED = "knfleet.dev/provided"
"""Label of a ClusterRole that an administrator has made, and that is not for us to write."""
PROVIDES = "knfleet.dev/provides"
"""On such a ClusterRole: the digests of the roles that it stands for."""
DONE_JOBS = "knfleet.dev/done-jobs"
"""On a parent: Jobs that are complete, and must not run again when their TTL removes them."""

LEGACY_MANAGER = "manifestival"
LEGACY_ANNOTATIONS = ("manifestival", "kubectl.kubernetes.io/last-applied-configuration")
"""What the Go operator puts on each object."""
