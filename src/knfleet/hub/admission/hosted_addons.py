"""Who may have the manifests of an add-on sent to another cluster, which the API server enforces.

The hub writes works to the hosting cluster that an annotation names, with its own rights. So who
names it, or changes what is sent there, needs the right to write works there.
"""

from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import HOSTING_CLUSTER
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.admission.policies import AdmissionPolicy, PolicyCheck

HOSTING = f"object.metadata.?annotations[?'{HOSTING_CLUSTER}'].orValue('')"
BEFORE = HOSTING.replace("object.", "oldObject.", 1)

ADDON_HOSTING = AdmissionPolicy(
    name="knfleet-addon-hosting",
    group=ADDONS.group,
    resources=(ADDONS.plural,),
    only_if=(
        ("hosted", f"{HOSTING} != ''"),
        (
            "changed",
            f"oldObject == null || {HOSTING} != {BEFORE} || object.?spec != oldObject.?spec",
        ),
    ),
    rules=(
        PolicyCheck(
            f"authorizer.group('{WORKS.group}').resource('{WORKS.plural}')"
            f".namespace({HOSTING}).check('create').allowed()",
            message_expression=(
                f"'to have cluster ' + {HOSTING} + ' host an add-on one needs the permission to"
                f" create {WORKS.plural} of {WORKS.group} in its namespace'"
            ),
        ),
    ),
)
