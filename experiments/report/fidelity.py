"""Lines of a report about the prepared model: comparison with its file, batch and calibration."""

from byoc.package.package import Calibration, Fidelity


def fidelity_line(found: Fidelity | None) -> str:
    """Describe how the model that runs compares with the model of the file."""
    if found is None:
        return "not compared with the model of the file"
    compared = f"{found.elements:,} elements of {found.tensors} tensor{'s' * (found.tensors != 1)}"
    without = f", without {', '.join(found.left_out)}" if found.left_out else ""
    if found.integer == 0 and not found.tensors:
        return f"as in the file{without}"
    if found.integer is not None:
        other = f"; ONNX Runtime fuses it differently, by up to {found.integer:.0e} of the range"
        parts = "its quantised parts " * bool(found.noise)
        exact = ", to the bit" * (not found.integer)
        text = f"{parts}equal to the file{exact} ({compared}){without}"
        noise = found.describe_noise("float parts in int8 to the file")
        return text + other * bool(found.integer) + noise
    text = f"as in the file ({compared}, largest difference {found.difference:.0e} of the range)"
    if found.widened:
        text += ", in float32 for half precision"
    if found.made_static:
        text += f", {found.made_static} dynamic quantisations made static on the samples"
    return text + without + found.describe_noise("int8 to float")


def batch_line(found: Fidelity) -> str:
    """Name the inputs whose open first dimension became 1."""
    names = ", ".join(f"'{name}'" for name in found.opened)
    return f"1, because the first dimension of {names} is open; --shape sets another"


def calibration_line(found: Calibration) -> str:
    """Describe the calibration samples of a float model, and its agreement with int8.

    The agreement is how often int8 and float give the same class.
    """
    if not found.samples:
        return f"the file quantises every part of the model; {found.origin} not used"
    inputs = f"{found.samples} input{'s' * (found.samples != 1)}"
    text = f"quantised on {inputs} of random numbers" if found.random else f"quantised on {inputs}"
    text += f" of {found.origin}" if found.origin else ""
    if found.given is not None and found.added is not None:
        text = f"{found.given} as the file quantises them; {found.added} added, {text}"
    agreement = ", ".join(
        f"{share:.1%} ({name})" for name, share in list(found.agreement.items())[:4]
    )
    return f"{text}; int8 and float have the same top-1 in {agreement}" if agreement else text
