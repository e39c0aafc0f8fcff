"""Erasure of class information from data, and measures of what remains."""

from erasure.concept_moments import ConceptMoments
from erasure.eraser import Eraser
from erasure.erasers.alf_qleace import AlfQleaceEraser
from erasure.erasers.gradient import GradientEraser
from erasure.erasers.gradient_orders import GradientOrdersEraser
from erasure.erasers.gradient_published import PublishedGradientEraser
from erasure.erasers.identity import IdentityEraser
from erasure.erasers.leace import LeaceEraser
from erasure.erasers.oracle_leace import OracleLeaceEraser
from erasure.erasers.qleace import QleaceEraser
from erasure.erasers.qleace_truncated import TruncatedQleaceEraser
from erasure.erasers.quantile import QuantileEraser
from erasure.erasers.random import RandomEraser
from erasure.erasers.random_edit import RandomEditEraser
from erasure.erasers.splince import SplinceEraser
from erasure.folding import fold, fold_layers
from erasure.hidden_states import attach, erase, fit_layers
from erasure.moments import ClassMoments
from erasure.order_spectra import OrderSpectrum, order_spectrum
from erasure.progress import on_progress

__version__ = "0.4.0"

__all__ = [
    "AlfQleaceEraser",
    "ClassMoments",
    "ConceptMoments",
    "Eraser",
    "GradientEraser",
    "GradientOrdersEraser",
    "IdentityEraser",
    "LeaceEraser",
    "OracleLeaceEraser",
    "OrderSpectrum",
    "PublishedGradientEraser",
    "QleaceEraser",
    "QuantileEraser",
    "RandomEditEraser",
    "RandomEraser",
    "SplinceEraser",
    "TruncatedQleaceEraser",
    "attach",
    "erase",
    "fit_layers",
    "fold",
    "fold_layers",
    "on_progress",
    "order_spectrum",
]
