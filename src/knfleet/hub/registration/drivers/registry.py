"""The registration drivers of this hub; another one is a module beside these, and a line here."""

from knfleet.hub.registration.drivers import aws_roles, csr, grpc_signing

DRIVERS = (csr.DRIVER, grpc_signing.DRIVER, aws_roles.DRIVER)
