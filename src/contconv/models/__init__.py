"""Networks made of public layers only: the paper's two, and one with antialiased strides."""

from contconv.models.blurpool import BlurPoolNet
from contconv.models.ccnet import CCNet, equal_steps
from contconv.models.convnet import ConvNet
from contconv.models.hub import with_hub
from contconv.models.published import pretrained, published

__all__ = ["BlurPoolNet", "CCNet", "ConvNet", "equal_steps", "pretrained", "published", "with_hub"]
