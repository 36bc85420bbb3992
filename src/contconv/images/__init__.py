"""Image files as tensors and back. Needs Pillow and NumPy, which are imported only when a file is read or written."""

from contconv.images.picture import PHOTO, ImageError, Picture, memory_free, photo, read, with_pixels, write

__all__ = ["PHOTO", "ImageError", "Picture", "memory_free", "photo", "read", "with_pixels", "write"]
