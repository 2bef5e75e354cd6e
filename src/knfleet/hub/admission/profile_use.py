"""Who may install on which cluster: an optional rule that the API server enforces.

Without it, every user who may write KnativeServings or KnativeEventings may name any ClusterProfile
in them, and the operator installs there with its own credentials. With it, the author of a spec,
the user of each request that writes it, needs the permission to `use` the profile. The author of a
KnativeFleet needs it for all profiles of the namespace that the fleet names.
"""

from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.hub.admission.policies import AdmissionPolicy, PolicyCheck

REFERENCE = "object.spec.clusterProfileRef"
PROFILE_USE = AdmissionPolicy(
    name="knfleet-profile-use",
    group=SERVINGS.group,
    resources=(SERVINGS.plural, EVENTINGS.plural),
    only_if=(
        ("profile", "has(object.spec) && has(object.spec.clusterProfileRef)"),
        ("changed", "oldObject == null || object.?spec != oldObject.?spec"),
    ),
    rules=(
        PolicyCheck(
            f"authorizer.group('{PROFILES.group}').resource('{PROFILES.plural}')"
            f".namespace({REFERENCE}.namespace).name({REFERENCE}.name).check('use').allowed()",
            message_expression=(
                f"'to install by ClusterProfile ' + {REFERENCE}.namespace + '/' +"
                f" {REFERENCE}.name + ' one needs the permission to use {PROFILES.plural} of"
                f" {PROFILES.group} there'"
            ),
        ),
    ),
)

NAMESPACE = "object.spec.clusters.namespace"
FLEET_USE = AdmissionPolicy(
    name="knfleet-fleet-use",
    group=KNATIVE_FLEETS.group,
    resources=(KNATIVE_FLEETS.plural,),
    only_if=(("changed", "oldObject == null || object.spec != oldObject.spec"),),
    rules=(
        PolicyCheck(
            f"authorizer.group('{PROFILES.group}').resource('{PROFILES.plural}')"
            f".namespace({NAMESPACE}).check('use').allowed()",
            message_expression=(
                f"'to install on the clusters of namespace ' + {NAMESPACE} + ' one needs the"
                f" permission to use {PROFILES.plural} of {PROFILES.group} there'"
            ),
        ),
    ),
)
