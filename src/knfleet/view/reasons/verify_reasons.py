"""What verifications of installations say."""

from knfleet.view.reasons.explanation import BOTH, Explanation, step

VERIFIED = (f"{BOTH}: Verified",)
AGAIN = step("Verify again:", "knfleet verify KIND/NAMESPACE/NAME")
OBJECTS = step(
    "What Knative says of the object, while the verification runs:",
    "kubectl --context SPOKE get ksvc,brokers,triggers,pods -A -l knfleet.dev/verify",
)

VERIFY: dict[str, Explanation] = {
    "VerificationSucceeded": Explanation(
        "On the target a small Knative Service became Ready and answered a request through the"
        " ingress; for Eventing, an event that was sent to a Broker reached the subscriber of a"
        " Trigger. The message names the release that was verified.",
        (),
        written_on=VERIFIED,
    ),
    "VerificationFailed": Explanation(
        "A step of the verification did not succeed. The message names the step and the object,"
        " with the last thing that was said about it. Ready does not depend on this.",
        (OBJECTS, AGAIN),
        "Not Ready: see the message, often an image that cannot be pulled; choose another with"
        " `--image`. A status such as 404 or 503: look at the pods of the ingress, and at those of"
        " the activator. An answer of another: another server has the host name of the route. No"
        " event arrives: look at the Trigger, and at the pods of the Broker.",
        VERIFIED,
    ),
    "Verifying": Explanation(
        "A verification was requested. It is in progress, or begins when the installation is"
        " Ready.",
        (OBJECTS,),
        written_on=VERIFIED,
    ),
    "PodsSimulated": Explanation(
        "The nodes of the target are dev nodes, which only report pods as running. Nothing can"
        " answer a request there, so that nothing was verified. A gate of a fleet waits.",
        (step("The nodes:", "kubectl --context SPOKE get nodes -o wide"),),
        "Verify on a cluster whose nodes run containers. A rollout goes on with `knfleet fleet"
        " promote NAME`.",
        VERIFIED,
    ),
    "VerificationForbidden": Explanation(
        "The hub's account on the target lacks rights that a verification needs; the message names"
        " all of them. Nothing was verified.",
        (),
        "Have an administrator of the target apply what `knfleet rights` prints. An ingress or a"
        " Broker that is not Knative's own needs the right to `services/proxy` that the message"
        " names, in the namespace that it names.",
        VERIFIED,
    ),
    "VerificationInterrupted": Explanation(
        "The API server of the target did not answer during the verification, so that nothing is"
        " known. A gate of a fleet tries again.",
        (AGAIN,),
        written_on=VERIFIED,
    ),
    "InvalidVerification": Explanation(
        "The annotation knfleet.dev/verify cannot be used; the message says why.",
        (),
        "Correct the annotation, or remove it and run `knfleet verify`.",
        VERIFIED,
    ),
}
