"""Steps that apply a custom resource's overrides to objects of the release."""
