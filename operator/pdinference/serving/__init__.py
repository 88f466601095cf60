"""The HTTPS server that the API server calls, its certificate, and the publication of its CA bundle."""

from pdinference.serving.bundle import BundleHolder, api_service, webhook_configurations
from pdinference.serving.callers import Callers, mounted, published
from pdinference.serving.certificates import Certificates, MountedCertificates, SelfManagedCertificates
from pdinference.serving.clients import ClientAuthorities
from pdinference.serving.request_header import RequestHeader
from pdinference.serving.server import TLSServer

__all__ = [
    "BundleHolder",
    "Callers",
    "Certificates",
    "ClientAuthorities",
    "MountedCertificates",
    "RequestHeader",
    "SelfManagedCertificates",
    "TLSServer",
    "api_service",
    "mounted",
    "published",
    "webhook_configurations",
]
