"""From a region of layers to one kernel: rewrite, find the values, choose a block, lower."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fusionstitch.codegen.assembly import Written, assembled, ops_after_rewriting
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.passes import LOWERED
from fusionstitch.codegen.ir.types import FLOAT
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.layers.found import find_layers
from fusionstitch.codegen.layers.lower import Lowering
from fusionstitch.codegen.layers.sizes import Shape, shaped
from fusionstitch.codegen.layers.values import WORTH_HOLDING
from fusionstitch.codegen.lower.buffers import buffer_of, is_table
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.search.left_out import LeftOut
from fusionstitch.codegen.settings import CodegenOptions, Settings, Way
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.kernel_cost import KernelCost
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.graph import Shape as Type

#: What a template of layers begins with.
WORD = "layers"
#: Warps of a block and blocks per multiprocessor, of which the first is taken that has room: two
#: blocks do not wait at the same time. Then those where threads need at most half of the registers,
#: and those where there is no room for more.
DOUBLED, LEAST = (8, 2), (4, 1)
SHAPES = ((4, 2), (8, 1), LEAST)
HALF_OF_REGISTERS = 128


@dataclass(frozen=True, eq=False)
class Layered:
    """A region of layers, as far as its cost estimate needs it."""

    region: Graph
    shape: Shape
    written: Written
    facts: KernelFacts
    options: CodegenOptions
    device: Device

    @property
    def template(self) -> str:
        """The template that gives this kernel."""
        shape = self.shape
        return str(Sizes(shape.warps, shape.per_sm, shape.layers.worth))

    @property
    def numbered_template(self) -> str:
        """The same: it has no names."""
        return self.template

    @property
    def lowered(self) -> Lowered:
        """Its statements, after all passes."""
        return self.written.lowered

    @property
    def cost(self) -> KernelCost:
        """What its statements do."""
        return self.facts.cost

    def kernel(self) -> Kernel:
        """The kernel. Raises CodegenError where the device cannot launch it."""
        ops = ops_after_rewriting(self.shape.layers.graph)
        summary = f"{ops} ops after rewriting, 16 rows of all layers in a warp."
        known = (*self.facts.facts, ("scope", self.facts.scope))
        return assembled(self.region, self.written, self.template, summary, known, self.device)


def plan_layers(graph: Graph, settings: Settings, watch: Watch = NOBODY) -> Layered:
    """The fastest kernel of a region of layers, by the cost of its statements, or the one of its
    template. Raises CodegenError for a region that is something else."""
    template = settings.options.template
    region = _rewritten(graph, replace(settings, template=None), watch)
    found = list(_tried(graph, region, settings, None if template is None else parsed(template)))
    best = min(found, key=lambda one: cost_us(one.cost, settings.device) * (1 + one.cost.spilled))
    if watch is not NOBODY:  # the passes over the statements of the one that is taken
        begun = _written(best.shape, settings.options.numerics)
        watch.lowered(begun.lowered, LOWERED, "what the layers became")
        begun.passed(watch)
    return best


def _tried(
    graph: Graph, region: Graph, settings: Settings, given: Sizes | None
) -> Iterator[Layered]:
    """The kernels that are compared, up to the first whose values fit into registers: fewer are
    held if not. Where half of these are left, twice as many warps are on a multiprocessor. Raises
    CodegenError if there is none."""
    refused: CodegenError | None = None
    found = False
    for worth in WORTH_HOLDING if given is None else (given.worth,):
        layers = find_layers(region, worth)
        for warps, blocks in SHAPES if given is None else ((given.warps, given.blocks),):
            if found and (warps, blocks) == LEAST:
                continue
            try:
                made = _layered(graph, shaped(layers, settings.device, warps, blocks), settings)
            except CodegenError as error:
                refused = refused or error
                continue
            found = True
            yield made
            if made.cost.spilled:
                continue
            if given is None and made.cost.registers <= HALF_OF_REGISTERS:
                with LeftOut(settings.options.check):
                    yield _layered(graph, shaped(layers, settings.device, *DOUBLED), settings)
            return
    if not found:
        raise refused or CodegenError(f"{graph.name} has no room on a multiprocessor.")


def other_shapes(of: Layered) -> Iterator[Layered]:
    """The same layers in blocks of other sizes, with fewer or more values held."""
    for worth in WORTH_HOLDING:
        for warps, blocks in (*SHAPES, DOUBLED):
            sizes = Sizes(warps, blocks, worth)
            if str(sizes) != of.template:
                with LeftOut(of.options.check):
                    settings = Settings(of.device, replace(of.options, template=str(sizes)))
                    yield plan_layers(of.region, settings)


def is_template(template: str | None) -> bool:
    """Whether a template is one of layers."""
    return template is not None and template.startswith(f"{WORD} ")


@dataclass(frozen=True)
class Sizes:
    """What a template of layers says: warps of a block, blocks per multiprocessor, and from how
    many operations on values are held."""

    warps: int
    blocks: int
    worth: int

    def __str__(self) -> str:
        return f"{WORD} warps {self.warps} blocks {self.blocks} held {self.worth}"


def parsed(template: str) -> Sizes:
    """The sizes of a template. Raises CodegenError."""
    match template.split():
        case [_, "warps", warps, "blocks", blocks, "held", worth]:
            if warps.isdigit() and blocks.isdigit() and worth.isdigit():
                return Sizes(int(warps), int(blocks), int(worth))
    like = Sizes(*SHAPES[0], WORTH_HOLDING[0])
    raise CodegenError(f'Templates of layers are like "{like}", not {template!r}.')


def _rewritten(graph: Graph, settings: Settings, watch: Watch) -> Graph:
    if settings.strict:
        raise CodegenError("Strict numerics round what lanes keep of a row.")
    if not settings.device.float_tensors:
        raise CodegenError(f"{settings.device.name} has no tensor cores for floats.")
    watch.region(graph, "region", "as it came in")
    graph = rewritten(rewritten(graph, settings, None, watch), settings, Way.LAYERS, watch)
    if any(not op.shape.is_tuple and op.shape.size == 0 for op in graph):
        raise CodegenError(f"{graph.name} has values without elements.")
    if any(is_table(op) for op in graph):
        raise CodegenError(f"{graph.name} reads a table of constants.")
    return graph


def _layered(region: Graph, shape: Shape, settings: Settings) -> Layered:
    begun = _written(shape, settings.options.numerics)
    written = begun.passed(check=settings.options.check)
    scope = "grid" if shape.sums else "block"
    own = (("warps", shape.warps), ("blocks_per_sm", shape.per_sm), ("rows", shape.layers.rows))
    facts = KernelFacts(written.cost(settings.device), scope, own)
    return Layered(region, shape, written, facts, settings.options, settings.device)


def _written(shape: Shape, numerics: str) -> Written:
    """What layers become, before all passes. Raises CodegenError."""
    graph, writer = shape.layers.graph, Writer()
    writer.name(graph.name)
    inputs = {p.id: writer.name(p.name or "input") for p in graph.parameters}
    buffers = [buffer_of(p, inputs[p.id], Memory.INPUT) for p in graph.parameters]
    outputs: dict[int, list[str]] = {}
    for op in graph.root.operands:
        name = writer.name(f"{op.name or op.opcode}_out")
        outputs.setdefault(op.id, []).append(name)
        buffers.append(buffer_of(op, name, Memory.OUTPUT))
    sums = shape.grid * shape.sums
    scratch = writer.name("scratch")
    if sums:
        buffers.append(Buffer(scratch, FLOAT, sums, Memory.SCRATCH))
    body = Lowering(shape, inputs, outputs, scratch, numerics, writer).body()
    lowered = Lowered(
        name=graph.name,
        buffers=tuple(buffers),
        functions=(),
        body=body,
        block=shape.block,
        cluster=1,
        grid=shape.grid,
        shared=shape.shared,
        per_sm=shape.per_sm,
        cooperative=bool(sums),
    )
    return Written(lowered, [graph], writer.names, scratch=[Type("f32", (sums,))] if sums else [])
