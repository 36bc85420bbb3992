"""Where the time of a layer of three input channels goes that does not shrink with them.

    python benchmarks/few_channels.py (`make bench-channels`)

Steps of 3 -> 32 channels at batch 50, 100x37, beside 3/32 of a step of 32 -> 32, which is what the arithmetic alone
would make of it. Beside that the least that a step could take: arithmetic as fast as that of 32 -> 32, and no more
passes over tensors of the size of the output than there must be, each as fast as memory allows. One writes y, one its
gradient (ones, here), one reads that, for everything at once. Interleaved in one run.
"""

import torch
from cases import IRREGULAR, THIRD, Case
from contenders import continuous, convolution, input_of
from measure import interleaved_seconds, trained


def main() -> None:
    calls, outputs = {}, {}
    for scale, name in ((THIRD, "2/3"), (IRREGULAR, "0.6789 x 0.7123")):
        for channels in (3, 32):
            case = Case("few", 50, (channels, 32), 3, (100, 37), scale)
            call, parameters = continuous(case)
            x = input_of(case)
            calls[f"{name}, {channels} -> 32"] = trained(call, x, parameters)
        outputs[name] = call(x).detach()
        calls[f"{name}, passes"] = passes(outputs[name])
    case = Case("few", 50, (3, 32), 3, (100, 37), THIRD)
    conv, parameters = convolution(case)
    calls["convolution, 3 -> 32"] = trained(conv, input_of(case), parameters)
    seconds = interleaved_seconds(calls, rounds=60, budget=60)
    for name, took in seconds.items():
        print(f"{name:28s}{1e3 * took:7.2f} ms")
    for name in outputs:
        few, many, passing = (seconds[f"{name}, {what}"] for what in ("3 -> 32", "32 -> 32", "passes"))
        proportional = many * 3 / 32
        least = passing + (many - passing) * 3 / 32
        print(f"{name}: {few / proportional:.2f} times 3/32 of 32 -> 32; at least {least / proportional:.2f}")


def passes(like: torch.Tensor):
    """What a step does with tensors of the size of the output, whatever its input channels are."""

    def step() -> tuple[torch.Tensor, ...]:
        y = torch.empty_like(like).fill_(0.0)
        gradient = torch.ones_like(y)
        return y, gradient.sum()

    return step


if __name__ == "__main__":
    main()
