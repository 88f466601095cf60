"""What the API server calls: one HTTPS server, its certificate, and the CA bundle by which the API server knows it."""

from pdinference.serving.bundle import BundleHolder, api_service, webhook_configurations
from pdinference.serving.certificates import Certificates, MountedCertificates, SelfManagedCertificates
from pdinference.serving.server import TLSServer

__all__ = [
    "BundleHolder",
    "Certificates",
    "MountedCertificates",
    "SelfManagedCertificates",
    "TLSServer",
    "api_service",
    "webhook_configurations",
]
