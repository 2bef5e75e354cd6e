"""The operator as a process: in the order in which the Knative Operator starts, with its ports.

health and metrics → logging → is Kubernetes new enough → election → CRDs → controllers
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web
from msgspec.structs import replace

from knfleet.api.core import CONFIG_MAPS, CRDS, NAMESPACES
from knfleet.api.crds.generator import definitions
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.clusters.cluster_metrics import watch_spokes
from knfleet.clusters.pool import ClusterPool, PoolPolicy
from knfleet.clusters.provider_file import ProviderFile
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.options import USER_AGENT
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden, KubeError, NotFound
from knfleet.operator import settings as configured
from knfleet.operator.controller import (
    AT_ONCE,
    TURN_SECONDS,
    KnativeController,
    OperatorContext,
    count_conditions,
)
from knfleet.operator.desired_objects import Renderer
from knfleet.operator.eventing import EVENTING
from knfleet.operator.resource_metrics import ResourceMetrics
from knfleet.operator.serving import SERVING
from knfleet.operator.settings import OperatorSettings, SettingError
from knfleet.operator.targets.shard import TargetShard
from knfleet.operator.targets.spoke_targets import SpokeTargets
from knfleet.operator.targets.targets import LocalTargets
from knfleet.operator.uninstall.orphan_cleanup import CleanupContext, OrphanCleanup
from knfleet.operator.uninstall.tombstones import Tombstones
from knfleet.release.releases import Releases
from knfleet.runtime import logs, served_kinds
from knfleet.runtime.http.health import HealthServer, check_response
from knfleet.runtime.http.listen_address import ListenAddress, bind_host
from knfleet.runtime.leader.leader import Leader, LeaderOptions
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Manager
from knfleet.runtime.metrics import Metrics
from knfleet.runtime.queue import QueueSlots
from knfleet.runtime.shards.membership import Membership
from knfleet.runtime.start_limit import StartLimit

HUB_SECONDS = 3.0
"""How long to wait before the hub is asked again."""


class Operator:
    """Everything that runs in the process."""

    def __init__(
        self,
        manager: Manager,
        connection: Connection,
        settings: OperatorSettings,
        providers: ProviderFile | None = None,
    ) -> None:
        self.manager = manager
        self.settings = settings
        self.providers = providers
        self.metrics = Metrics()
        self.connection = connection
        self.options = ClientOptions(
            observe=self.metrics,
            requests_per_second=settings.requests_per_second,
            burst=settings.burst,
        )
        self.client = Client(connection, self.options)
        self.writer = self.client
        """What controllers write with: it sends nothing while the work is another process's."""
        self.leading_writer = self.client
        """The same for what is the leader's, also when replicas share spokes."""
        self.health = OperatorHealth(ListenAddress(bind_host(), settings.health_port), self.metrics)
        self.shares: TargetShard | None = None
        """What of all work is ours, when replicas share it."""
        self.controllers: list[KnativeController] = []
        self.has_crds = False
        self.unanswered = ""
        """Why the API server has not answered at all yet."""
        self.begun = asyncio.Event()
        """Set when the controllers have begun to watch."""
        self.metrics_server: HealthServer | None = None

    async def start(self, releases: Releases) -> None:
        """Check what must be checked, and add everything to the manager."""
        self.manager.close_last(self.client.close)
        self.health.health["stopping"] = self.stopping
        self.health.readiness.update(stopping=self.stopping, hub=self.hub, crds=self.crds)
        # First, for it is healthy to wait for an API server.
        self.manager.add(self.health, "health")
        await self.check_version()
        await self.elect()
        self.watch_settings()
        renderer = Renderer(releases, self.settings.minimum_kubernetes)
        self.manager.add(OneTimeTask(partial(self.begin, renderer)), "controllers")

    async def check_version(self) -> None:
        """Read the log level, then raise `SettingError` when Kubernetes is too old."""
        version = await self.first_answer()
        data = configured.data_of(await self.config_map(self.settings.config_logging))
        logs.configure(configured.log_level(data, self.settings.verbosity))
        minimum = self.settings.minimum_kubernetes or configured.MINIMUM_KUBERNETES
        if configured.is_too_old(version, minimum):
            raise SettingError(
                f"Kubernetes {version} is older than {minimum}, the oldest that Knative supports;"
                " upgrade the cluster, or set KUBERNETES_MIN_VERSION to try it all the same"
            )
        log.info("starting", kubernetes=version, namespace=self.settings.system_namespace)

    async def first_answer(self) -> str:
        """The version of the API server, which may still be starting, or be away for hours."""
        while True:
            try:
                version = await self.client.version()
            except KubeError as error:
                if not self.unanswered:
                    log.warning("the API server does not answer yet; waiting", error=str(error))
                self.unanswered = str(error)
                await asyncio.sleep(1)
            else:
                self.unanswered = ""
                return version

    async def config_map(self, name: str) -> dict[str, object] | None:
        """One of our ConfigMaps; all of them are optional."""
        try:
            return await self.client.get(CONFIG_MAPS, name, self.settings.system_namespace)
        except KubeError as error:
            if not isinstance(error, NotFound):
                log.warning("settings not read", config_map=name, error=str(error))
            return None

    async def elect(self) -> None:
        """Take part in the election, unless there is none."""
        if self.settings.disable_ha:
            if self.settings.share_spokes:
                raise SettingError("--share-spokes needs leader election; drop --disable-ha")
            return
        found = await self.config_map(self.settings.config_leader_election)
        options = LeaderOptions(configured.timing(configured.data_of(found)), observe=self.metrics)
        key = Key(self.settings.system_namespace, configured.LEASE)
        leader = Leader(self.client, key, self.manager.identity, options)
        self.options = replace(self.options, user_agent=f"{USER_AGENT} {leader.identity}")
        self.manager.elect(leader)
        self.writer = self.leading_writer = self.fenced(leader.require)
        if self.settings.share_spokes:
            namespace = self.settings.system_namespace
            membership = Membership(self.client, namespace, leader.identity)
            self.manager.share(membership)
            self.shares = TargetShard(membership, leader)
            self.writer = self.fenced(self.shares.require)

    def fenced(self, require: Callable[[], None]) -> Client:
        """A client that writes only while something holds."""
        client = Client(self.connection, replace(self.options, before_write=require))
        self.manager.close_last(client.close)
        return client

    def watch_settings(self) -> None:
        """Follow the ConfigMaps that may be changed while we run."""
        informer = Informer(
            self.client,
            CONFIG_MAPS,
            self.settings.system_namespace,
            labels=self.settings.resource_label,
            trim=without_managed_fields,
        )
        informer.on_change(self.take_settings)
        self.manager.add(informer, "settings")

    def take_settings(self, change: StoreChange) -> None:
        """A ConfigMap changed."""
        data = configured.data_of(change.new)
        if change.key.name == self.settings.config_logging:
            logs.configure(configured.log_level(data, self.settings.verbosity))
        elif change.key.name == self.settings.config_observability:
            self.serve_metrics(wanted=configured.wants_metrics(data))

    def serve_metrics(self, *, wanted: bool) -> None:
        """Serve metrics on their own port from when they are asked for."""
        if not wanted or self.metrics_server is not None:
            return
        host = self.settings.metrics_host or bind_host()
        self.metrics_server = HealthServer(
            ListenAddress(host, self.settings.metrics_port), self.metrics
        )
        self.manager.add(self.metrics_server, "metrics")

    async def begin(self, renderer: Renderer) -> None:
        """Start the controllers when there is something to control."""
        if self.settings.install_crds:
            for manifest in definitions():
                await self.client.apply(CRDS, manifest)
        await served_kinds.wait_for(self.client, (SERVINGS, EVENTINGS))
        self.has_crds = True
        spokes = self.connect_spokes()
        hub_uid = await self.hub_uid()
        local = LocalTargets(self.leading_writer)
        targets = SpokeTargets(local, spokes, hub_uid, self.writer)
        context = OperatorContext(
            self.writer,
            targets,
            renderer,
            self.metrics,
            Tombstones(self.writer, self.settings.system_namespace),
            StartLimit(AT_ONCE, TURN_SECONDS),
            QueueSlots(per_cluster=self.settings.threads),
            self.settings.poll_seconds,
            self.settings.verify_image,
            None if self.shares is None else self.shares.owns,
        )
        self.controllers = [
            KnativeController(kind, context, self.manager) for kind in (SERVING, EVENTING)
        ]
        self.measure(spokes)
        for controller in self.controllers:
            spokes.on_change(controller.spoke_changed)
            controller.join(self.manager)
        resources = {each.kind.resource.kind: each.resources for each in self.controllers}
        cleaner = OrphanCleanup(
            context.tombstones, spokes, CleanupContext(hub_uid, resources, context.owns)
        )
        cleaner.join(self.manager)
        spokes.join(self.manager)
        if self.shares is not None:
            self.shares.measure(self.metrics)
            self.shares.follow([*self.controllers, cleaner], spokes)
            self.manager.add(OneTimeTask(self.shares.lead), "local custom resources", leading=True)
        self.begun.set()

    def connect_spokes(self) -> ClusterPool:
        """The spokes; they are connected to when controllers use them, and so by the leader."""
        if self.providers is None:
            log.info("multi-cluster support disabled (--clusterprofile-provider-file is empty)")
        log.info("Remote deployments poll interval", seconds=self.settings.poll_seconds)
        policy = PoolPolicy(
            observe=self.metrics,
            before_write=self.writer.options.before_write,
            minimum=self.settings.minimum_kubernetes or configured.MINIMUM_KUBERNETES,
            user_agent=self.options.user_agent,
        )
        return ClusterPool(
            self.client, self.providers, lifetime=self.manager.lifetime, policy=policy
        )

    async def hub_uid(self) -> str:
        """What tells this hub from others; empty when we may not know."""
        while True:
            try:
                kube_system = await self.client.get(NAMESPACES, "kube-system")
                return str(kube_system["metadata"]["uid"])
            except Forbidden as error:
                log.warning("two hubs on one spoke cannot be distinguished", error=str(error))
                return ""
            except KubeError as error:
                log.warning("the hub does not answer", error=str(error))
            await asyncio.sleep(HUB_SECONDS)

    def measure(self, spokes: ClusterPool) -> None:
        """Register the metrics of custom resources and spokes."""
        count_conditions(self.metrics, self.controllers)

        def resources() -> list[Object]:
            return [item for each in self.controllers for item in each.resources.items()]

        ResourceMetrics(resources, spokes.states).join(self.metrics)
        watch_spokes(self.metrics, spokes)

    def stopping(self) -> str | None:
        """Not well from the moment of the signal on."""
        return "stopping" if self.manager.stopping.is_set() else None

    def crds(self) -> str | None:
        """No use without CRDs."""
        return None if self.has_crds else "custom resource definitions are missing"

    def hub(self) -> str | None:
        """No use without an API server."""
        failing = [each.resources.failing for each in self.controllers]
        return self.unanswered or next((str(each) for each in failing if each is not None), None)


class OperatorHealth(HealthServer):
    """The health server, with the Knative Operator's paths beside our own."""

    def app(self) -> web.Application:
        """What is served."""
        app = super().app()
        app.router.add_get("/health", partial(check_response, self.health))
        app.router.add_get("/readiness", partial(check_response, self.readiness))
        return app


class OneTimeTask:
    """Something that is done once, as a component."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self.work = work

    async def run(self) -> None:
        """Do it."""
        await self.work()


async def build(
    manager: Manager,
    *,
    connection: Connection,
    releases: Releases,
    settings: OperatorSettings,
    providers: ProviderFile | None = None,
) -> None:
    """Fill a manager with everything that the operator is."""
    await Operator(manager, connection, settings, providers).start(releases)
