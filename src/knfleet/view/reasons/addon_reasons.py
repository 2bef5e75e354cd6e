"""Conditions and Events of add-ons."""

from knfleet.view.reasons.explanation import Explanation, step

WHOLE = step("The whole status:", "kubectl get managedclusteraddon -n CLUSTER NAME -o yaml")
WORKS = step(
    "The works of the add-on:",
    "kubectl get manifestworks -n CLUSTER -l open-cluster-management.io/addon-name=NAME -o yaml",
)
CONFIGS = step("Its configurations:", "knfleet addon explain NAME --cluster CLUSTER")
APPLIED = ("ManagedClusterAddOn: ManifestApplied",)
AVAILABLE = ("ManagedClusterAddOn: Available",)
CONFIGURED = ("ManagedClusterAddOn: Configured",)
PROGRESSING = ("ManagedClusterAddOn: Progressing", "ClusterManagementAddOn: Progressing")
REGISTERED = ("ManagedClusterAddOn: RegistrationApplied",)
HOOKS = ("ManagedClusterAddOn: HookManifestCompleted",)
CONVERSION = ("ClusterManager: HubAddOnDegraded",)
HOSTING = ("ManagedClusterAddOn: HostingClusterValidity",)
TOKENS = ("ManagedClusterAddOn: TokenInfrastructureReady",)


def fine(meaning: str, written_on: tuple[str, ...]) -> Explanation:
    """A reason of something that is as it should be."""
    return Explanation(meaning, (), written_on=written_on)


ADDON: dict[str, Explanation] = {
    "AddOnFunctional": fine(
        "The API server converts add-on objects by the hub's webhook.", CONVERSION
    ),
    "ConversionUnavailable": Explanation(
        "The API server cannot call the hub's conversion webhook, so that v1beta1 of add-on objects"
        " is not served. v1alpha1, which is stored, is served; hub and agents use that.",
        (
            step("The hub's pods:", "kubectl get pods -n open-cluster-management"),
            step(
                "The Service:",
                "kubectl get endpoints -n open-cluster-management cluster-manager-webhook",
            ),
        ),
        "Run the hub with its webhook port (the default of `knfleet init`), and let the API server"
        " reach it.",
        CONVERSION,
    ),
    "AddonManifestApplied": fine("All manifests of the add-on are applied.", APPLIED),
    "AddonManifestAppliedFailed": Explanation(
        "The agent of the cluster could not apply a manifest of the add-on.",
        (WORKS,),
        "Correct the template, or what the message names on the cluster.",
        APPLIED,
    ),
    "ManifestWorkApplyFailed": Explanation(
        "The hub could not make the manifests of the add-on from its template and configurations."
        " What was delivered before stays.",
        (CONFIGS,),
        "Correct the template or the configuration as the message says.",
        APPLIED,
    ),
    "ConfigurationsConfigured": fine("The add-on has its configurations.", CONFIGURED),
    "ConfigurationsNotConfigured": Explanation(
        "A configuration does not exist, or the rollout has not released it for the cluster.",
        (CONFIGS,),
        "Create what is missing; a rollout that waits says why on the ClusterManagementAddOn.",
        CONFIGURED,
    ),
    "ConfigurationUnsupported": Explanation(
        "spec.configs has a type of configuration that the add-on does not understand.",
        (WHOLE,),
        "Remove it from spec.configs, or add the type to supportedConfigs of the"
        " ClusterManagementAddOn.",
        PROGRESSING,
    ),
    "Completed": fine("The configurations are applied.", PROGRESSING),
    "Progressing": Explanation(
        "Configurations are being applied; the message says what is awaited.",
        (CONFIGS,),
        "Wait. On the ClusterManagementAddOn the message names clusters that failed.",
        PROGRESSING,
    ),
    "WaitingForManifestApplied": fine("The manifests of the add-on are awaited.", PROGRESSING),
    "RolloutNotPossible": Explanation(
        "A Placement of the install strategy does not exist, or its rollout strategy makes no"
        " sense.",
        (step("The add-on:", "kubectl get clustermanagementaddon NAME -o yaml"),),
        "Create the Placement, or correct the field that the message names.",
        PROGRESSING,
    ),
    "NilRegistration": fine("The agent of the add-on needs no access to the hub.", REGISTERED),
    "SetPermissionApplied": fine("The agent of the add-on has its rights on the hub.", REGISTERED),
    "SetPermissionFailed": Explanation(
        "A role could not be bound to the agent of the add-on.",
        (WHOLE,),
        "Permit the hub's ServiceAccount to bind the role, or correct hubPermissions of the"
        " template.",
        REGISTERED,
    ),
    "ProbeAvailable": fine("The workloads of the add-on are ready.", AVAILABLE),
    "ProbeUnavailable": Explanation(
        "A Deployment or DaemonSet of the add-on is not ready.",
        (WORKS,),
        "Look at its pods on the cluster.",
        AVAILABLE,
    ),
    "NoProbeResult": Explanation(
        "The agent of the cluster has not reported on a workload yet.",
        (WORKS,),
        "Wait; look at the agent when it takes longer than a minute.",
        AVAILABLE,
    ),
    "WorkNotApplied": Explanation(
        "The works of the add-on are not applied yet, or objects of them are missing.",
        (WORKS,),
        "Look at the conditions of the works.",
        AVAILABLE,
    ),
    "WorkNotFound": Explanation(
        "The add-on has no works.",
        (CONFIGS,),
        "Look at the conditions Configured and ManifestApplied.",
        AVAILABLE,
    ),
    "ManagedClusterAddOnLeaseUpdated": fine("The add-on's agent renews its Lease.", AVAILABLE),
    "ManagedClusterAddOnLeaseUpdateStopped": Explanation(
        "The add-on's agent does not renew its Lease any more.",
        (WHOLE,),
        "Look at the pods of the add-on on the cluster.",
        AVAILABLE,
    ),
    "ManagedClusterAddOnLeaseNotFound": Explanation(
        "There is no Lease of the add-on in its namespace on the cluster.",
        (WHOLE,),
        "See that its agent runs, and that it renews a Lease named like the add-on.",
        AVAILABLE,
    ),
    "HookManifestIsCompleted": fine("The hooks of the add-on have run.", HOOKS),
    "HookManifestIsNotCompleted": Explanation(
        "The add-on is removed when its hooks have run.",
        (WORKS,),
        "Look at the Job or Pod that the message names, on the cluster.",
        HOOKS,
    ),
    "HooksSkipped": Explanation(
        "An add-on was removed without its hooks, since its template was gone or unusable.",
        (),
        "Clean up by hand what the hooks would have.",
        ("Event on the ManagedClusterAddOn",),
    ),
    "HostingClusterValid": fine("The hosting cluster belongs to the fleet.", HOSTING),
    "HostingClusterInvalid": Explanation(
        "The hosting cluster of the add-on is not a managed cluster of the hub.",
        (WHOLE,),
        "Correct the annotation addon.open-cluster-management.io/hosting-cluster-name.",
        HOSTING,
    ),
    "TokenInfrastructureReady": fine("The add-on's account on the hub is there.", TOKENS),
    "TokenInfrastructureApplyFailed": Explanation(
        "The add-on's account on the hub could not be made.",
        (WHOLE,),
        "Run `knfleet init` again: it brings the hub's rights up to date.",
        TOKENS,
    ),
    "TokenRefreshed": fine(
        "The add-on's agent has a new token.", ("ManagedClusterAddOn: TokenRefreshed",)
    ),
}
