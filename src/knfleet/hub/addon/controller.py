"""The controllers of add-ons, as `hub.manager` lists them."""

from knfleet.hub.addon import rights
from knfleet.hub.addon.addon_controller import AddOnController
from knfleet.hub.addon.cluster_addon_controller import ClusterAddOnController
from knfleet.hub.addon.cluster_labels import AddOnLabelController
from knfleet.hub.addon.conversion.conversion_check import EVERYTHING, ConversionCheckController
from knfleet.hub.addon.registration.certificate_controller import AddOnCertificateController
from knfleet.hub.hub_controller import HubController

CONTROLLERS = (
    HubController("clustermanagementaddon", ClusterAddOnController, rights.INSTALLATION_RULES),
    HubController("managedclusteraddon", AddOnController, rights.DELIVERY_RULES),
    HubController("addoncertificaterequest", AddOnCertificateController, rights.CERTIFICATE_RULES),
    HubController(
        "addonconversion",
        ConversionCheckController,
        rights.CONVERSION_RULES,
        initial=(EVERYTHING,),
    ),
    HubController("addonlabel", AddOnLabelController, rights.LABEL_RULES),
)
