"""Which of PyTorch's products is the fastest for the matrices of a class, for `strategies/products.py`.

    python benchmarks/plain_products.py (`make bench-products`)

B filters [K, Co] and as many matrices [M, K] or [M, Co], 4 MiB of what is seen: by MKL's batches of products and by
oneDNN's grouped convolutions of single pixels, in GFLOP/s, interleaved in one run.
"""

import torch
from measure import interleaved_seconds
from torch.nn import functional as F

SHAPES = [(27, 32), (72, 8), (144, 16), (153, 23), (288, 16), (288, 32), (576, 64), (1152, 128)]  # K, Co
ROWS = (16, 50, 96, 200, 500)
SEEN_BYTES = 4 * 2**20


def image(matrices: torch.Tensor) -> torch.Tensor:
    """[M, B, K] as one image of M pixels with a group of K channels for each matrix."""
    return matrices.reshape(1, len(matrices), 1, -1).permute(0, 3, 1, 2)


def contenders(width: int, columns: int, rows: int) -> tuple[dict, int]:
    """Forward, gradient of what is seen, gradient of filters: every product in the order that it reads best."""
    count = max(2, SEEN_BYTES // (4 * rows * width))
    own = torch.randn(count, width, columns)
    seen, y = torch.randn(count, rows, width), torch.randn(count, rows, columns)
    seen_by_rows, y_by_rows = (one.transpose(0, 1).contiguous() for one in (seen, y))
    to_y, to_seen, to_own = torch.empty_like(y), torch.empty_like(seen), torch.empty_like(own)
    as_convolution = own.reshape(-1, columns, 1, 1)
    calls = {
        "forward, products": lambda: torch.bmm(seen, own, out=to_y),
        "forward, convolution": lambda: F.conv_transpose2d(image(seen_by_rows), as_convolution, groups=count),
        "back, products": lambda: torch.bmm(y, own.mT, out=to_seen),
        "back, convolution": lambda: F.conv2d(image(y_by_rows), as_convolution, groups=count),
        "filters, products": lambda: torch.bmm(seen.mT, y, out=to_own),
    }
    return calls, 2 * count * rows * width * columns


def main() -> None:
    torch.manual_seed(0)
    print("  K   Co    M   GFLOP/s")
    for width, columns in SHAPES:
        for rows in ROWS:
            calls, flops = contenders(width, columns, rows)
            seconds = interleaved_seconds(calls, rounds=25, budget=2.0)
            rates = (f"{name} {flops / took / 1e9:4.0f}" for name, took in seconds.items())
            print(f"{width:4d} {columns:4d} {rows:4d}   " + ";  ".join(rates), flush=True)


if __name__ == "__main__":
    main()
