"""Targets that are spokes: a live connection, the right cluster behind it, and our anchor on it."""

from msgspec.structs import replace

from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply.desired import OwnerReferences
from knfleet.apply.manifest_fields import part
from knfleet.clusters.access_errors import REMOTE_CLIENT_CREATION_FAILED, AccessError
from knfleet.clusters.anchor import Anchors, AnchorSpec
from knfleet.clusters.cluster import LiveCluster
from knfleet.clusters.connection_state import Phase
from knfleet.clusters.pool import ClusterPool
from knfleet.kube.client.verbs import Client
from knfleet.operator.kinds import TARGET_UID, annotations_of, profile_of, uid_of, was_installed
from knfleet.operator.targets.targets import LocalTargets, Target, TargetError

PASSING = frozenset({Phase.CONNECTING, Phase.CLOSED})
"""Phases that are over soon, one way or another."""
UNKNOWN = "unknown"
"""What is noted of a cluster whose kube-system we may not read."""
RESOURCES = {resource.kind: resource for resource in (SERVINGS, EVENTINGS)}


class SpokeTargets:
    """The hub for local custom resources, a spoke for those that name one."""

    def __init__(
        self, local: LocalTargets, spokes: ClusterPool, hub_uid: str, hub: Client | None = None
    ) -> None:
        self.local = local
        self.hub = hub or local.client
        """With what custom resources of spokes are written, which may be another's to write."""
        self.spokes = spokes
        self.hub_uid = hub_uid
        self.rooted: dict[str, Target] = {}
        """By the uid of the custom resource: what was made ready and is watched since."""

    async def resolve(self, manifest: Object) -> Target:
        """The target of a custom resource, with namespace and anchor."""
        profile = profile_of(manifest)
        if profile is None:
            return await self.local.resolve(manifest)
        live = await self.live(manifest, profile)
        check_uid(manifest, profile, live.uid)
        root = root_of(manifest, self.hub_uid)
        known = self.rooted.get(uid_of(manifest))
        if known is not None and known.client is live.client and known.root == root:
            return known
        was_used = was_installed(manifest)
        # Noted before anything is written there: without the note nothing needs to be removed.
        await self.note_uid(manifest, live.uid)
        rooted = await Anchors(live.client).ensure(root)
        target = Target(
            live.cluster,
            live.client,
            OwnerReferences(rooted.anchor, rooted.namespace),
            root.key,
            root,
            was_used,
        )
        self.rooted[uid_of(manifest)] = replace(target, was_used=True)
        empty = frozenset([root.key.namespace]) if rooted.is_new else frozenset[str]()
        return replace(target, just_read=rooted.anchor, empty=empty)

    async def find(self, manifest: Object) -> Target:
        """The target of a custom resource that is to be removed, healthy or not."""
        profile = profile_of(manifest)
        if profile is None:
            return await self.local.find(manifest)
        live = await self.live(manifest, profile, even_unhealthy=True)
        check_uid(manifest, profile, live.uid)
        root = root_of(manifest, self.hub_uid)
        anchor = await Anchors(live.client).find(root)
        return Target(
            live.cluster, live.client, OwnerReferences(anchor), root.key, root, was_used=True
        )

    async def live(
        self, manifest: Object, profile: Key, *, even_unhealthy: bool = False
    ) -> LiveCluster:
        """The connection to the spoke of a custom resource."""
        self.spokes.use(profile, holder_of(manifest))
        try:
            return await self.spokes.live(profile, even_unhealthy=even_unhealthy)
        except AccessError as error:
            state = self.spokes.state(profile)
            is_lasting = state is not None and state.phase not in PASSING
            raise TargetError(error.reason, str(error), is_lasting=is_lasting) from error

    async def reach(self, manifest: Object) -> None:
        """Make sure that a target answers from which something is to be removed."""
        profile = profile_of(manifest)
        if profile is not None:
            await self.live(manifest, profile, even_unhealthy=True)

    def problem(self, manifest: Object) -> TargetError | None:
        """Why the spoke cannot be used, if that is known."""
        profile = profile_of(manifest)
        state = None if profile is None else self.spokes.state(profile)
        if state is None or not state.reason:
            return None
        return TargetError(state.reason, state.message, is_lasting=state.phase not in PASSING)

    def is_away(self, manifest: Object) -> bool:
        """Whether the spoke does not answer."""
        profile = profile_of(manifest)
        state = None if profile is None else self.spokes.state(profile)
        return state is not None and state.phase is Phase.LOST

    async def note_uid(self, manifest: Object, uid: str) -> None:
        """Write on a custom resource which cluster it is installed on."""
        noted = uid or UNKNOWN
        if annotations_of(manifest).get(TARGET_UID) == noted:
            return
        patch: Object = {
            "metadata": {"uid": uid_of(manifest), "annotations": {TARGET_UID: noted}},
        }
        await self.hub.patch(RESOURCES[manifest["kind"]], Key.of(manifest), patch)

    def forget(self, manifest: Object) -> None:
        """Look at namespace and anchor anew."""
        self.rooted.pop(uid_of(manifest), None)

    def leave(self, manifest: Object) -> None:
        """A custom resource is gone."""
        self.forget(manifest)
        profile = profile_of(manifest)
        if profile is not None:
            self.spokes.leave(profile, holder_of(manifest))


def holder_of(manifest: Object) -> str:
    """Who needs a connection, in words."""
    return f"{manifest['kind']} {Key.of(manifest)}"


def root_of(manifest: Object, hub_uid: str) -> AnchorSpec:
    """Namespace and anchor of a custom resource, as they must be."""
    spec = part(manifest, "spec")
    older, newer = part(spec, "namespaceConfiguration"), part(spec, "namespace")
    return AnchorSpec(
        manifest["kind"],
        Key.of(manifest),
        hub_uid,
        {**part(older, "labels"), **part(newer, "labels")},
        {**part(older, "annotations"), **part(newer, "annotations")},
    )


def check_uid(manifest: Object, profile: Key, uid: str) -> None:
    """Raise `TargetError` when another cluster answers than the one that was installed on."""
    before = annotations_of(manifest).get(TARGET_UID, UNKNOWN)
    if before in (uid, UNKNOWN):
        return
    kind, key = manifest["kind"], Key.of(manifest)
    if not uid:
        raise TargetError(
            REMOTE_CLIENT_CREATION_FAILED,
            f"the credentials of ClusterProfile {profile} may not read namespace kube-system any"
            f" more, so it cannot be verified that this is the cluster that {kind} {key} is"
            f" installed on, which has the uid {before}; nothing is written there. Grant `get` on"
            f" that namespace, or remove the annotation {TARGET_UID} from the {kind}",
        )
    raise TargetError(
        REMOTE_CLIENT_CREATION_FAILED,
        f"ClusterProfile {profile} leads to another cluster than the one that {kind} {key} is"
        f" installed on: its kube-system has the uid {uid}, not {before}; nothing is written there."
        " Correct the profile; or, if the cluster was replaced on purpose, remove the annotation"
        f" {TARGET_UID} from the {kind}",
    )
