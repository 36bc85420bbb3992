"""Where the time of a layer of three input channels goes that does not shrink with them.

    python benchmarks/few_channels.py (`make bench-channels`)

Steps of 3 -> 32 channels at batch 50, 100x37, beside 3/32 of a step of 32 -> 32, which is what the arithmetic alone
would make of it; and single passes over tensors of the size of the output, of which a step needs at least five: one
writes y, one its gradient (ones, here), two read that (for x and for the weights), one sums it for the bias.
Interleaved in one run.
"""

import torch
from cases import IRREGULAR, THIRD, Case
from contenders import continuous, convolution, input_of
from measure import interleaved_seconds, trained


def main() -> None:
    calls = {}
    for scale, name in ((THIRD, "2/3"), (IRREGULAR, "0.6789 x 0.7123")):
        for channels in (3, 32):
            case = Case("few", 50, (channels, 32), 3, (100, 37), scale)
            call, parameters = continuous(case)
            calls[f"{name}, {channels} -> 32"] = trained(call, input_of(case), parameters)
    case = Case("few", 50, (3, 32), 3, (100, 37), THIRD)
    conv, parameters = convolution(case)
    calls["convolution, 3 -> 32"] = trained(conv, input_of(case), parameters)
    y = continuous(case)[0](input_of(case)).detach()
    calls["writing y"] = lambda: torch.empty_like(y).fill_(1.0)
    calls["reading its gradient"] = lambda: y.sum()
    calls["summing it over pixels"] = lambda: y.sum((0, 2, 3))
    seconds = interleaved_seconds(calls, rounds=60, budget=60)
    for name, took in seconds.items():
        whole = seconds.get(name.replace("3 -> 32", "32 -> 32")) if name[0] in "02" and ", 3 ->" in name else None
        more = f", {took / (whole * 3 / 32):.2f} times 3/32 of 32 -> 32" if whole else ""
        print(f"{name:28s}{1e3 * took:7.2f} ms{more}")


if __name__ == "__main__":
    main()
