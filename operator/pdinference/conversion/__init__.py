"""Converts a vLLM command line or manifest to a PDInference. Pure: it maps text and data to data."""

from pdinference.conversion.launch import ConversionError, Launch, Remark
from pdinference.conversion.reading import is_yaml, starts_in_documents, starts_in_script, starts_in_words
from pdinference.conversion.resource import Conversion, convert
from pdinference.conversion.roles import pair_of

__all__ = [
    "Conversion",
    "ConversionError",
    "Launch",
    "Remark",
    "convert",
    "is_yaml",
    "pair_of",
    "starts_in_documents",
    "starts_in_script",
    "starts_in_words",
]
