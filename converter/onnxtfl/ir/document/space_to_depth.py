"""SpaceToDepth and DepthToSpace with `blocksize`."""

from onnxtfl.ir.document.forms import Spelling
from onnxtfl.ir.ops.space_to_depth import DepthToSpace, SpaceToDepth

for _op in (DepthToSpace, SpaceToDepth):
    Spelling(_op, {"blocksize": "block_size"}).register()
