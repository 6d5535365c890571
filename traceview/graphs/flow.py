"""Follows what flows through the graphs of step functions: what depends on what, through what gradients go, and what is 0."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from traceview.graphs.calls import (
    CALLS,
    GRADIENT_SCOPE,
    HANDLES,
    LOOPS,
    MOST_VISITED,
    Call,
    source,
)
from traceview.graphs.flops import FLOPS_OF, relative_size
from traceview.graphs.zeros import (
    APART,
    SCALING,
    SUMS,
    ZEROS,
    exchanges,
    gives_zeros,
    is_array,
    makes_zeros,
    parts_of,
)

NEXT: Final = "IteratorGetNext"
OF_ONE: Final = frozenset((
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Expm1", "Floor", "Inv", "LeakyRelu", "Log", "Log1p", "Neg", "Reciprocal", "Relu", "Relu6",
    "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Square", "Tanh",
))  # fmt: skip
"""What computes a number of each that it is given."""
OF_TWO: Final = frozenset((
    "Add", "AddV2", "BiasAdd", "Maximum", "Minimum", "Mul", "Pow", "RealDiv", "SelectV2", "SquaredDifference", "Sub",
))  # fmt: skip
"""What computes one of numbers at the same place in its inputs."""
VIEWS: Final = frozenset(("Cast", "ExpandDims", "Identity", "Reshape", "Squeeze", "Transpose"))
"""What gives the numbers that it is given, in whatever shape and type."""
REPEATS: Final = frozenset(("BroadcastTo", "Tile"))
_READS: Final = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd"))
_ASKING: Final = {*_READS, "Placeholder", "VariableShape"}
_UPDATES: Final = frozenset(("AssignAddVariableOp", "AssignSubVariableOp"))
_ASSIGNS: Final = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
"""How the types of ops begin that change variables."""
_NO_GRADIENT: Final = frozenset(("bool", "resource", "string"))
_REPLICA: Final = re.compile(r"(?<![^/])(replica_[1-9]\d{0,5})/")


def around(name: str) -> str:
    """The scope of a name."""
    return name.rpartition("/")[0]


Node: TypeAlias = tuple[Call, str]
"""An op of a call, or a result of an op that calls; that op itself is whether, and how often, it calls."""
Edges: TypeAlias = dict[Node, list[Node]]


def followed(starts: Iterable[Node], after: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """The nodes that are reached, with the starts; `after`: those that one leads to."""
    found, waiting = set[Node](), list(starts)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += after(node)
    return found


def reached(starts: Iterable[Node], *edges: Edges) -> set[Node]:
    """The nodes that edges lead to, with the starts."""
    return followed(starts, lambda node: (to for each in edges for to in each.get(node, ())))


def _backwards(edges: Edges) -> Edges:
    found: Edges = {}
    for node, following in edges.items():
        for each in following:
            found.setdefault(each, []).append(node)
    return found


_MOST_NUMBERS: Final = 1 << 20
"""Of a tensor that is looked at, 4 MB in float32. A choice of ours."""


class Flow:
    """What ops read and wait for (`reads`), and who reads them (`users`). `sources`: what may differ from step to step, and whether
    that is any other state than the batch; `variables`: those that are handles, or only read one.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        self.ops: dict[Node, Any] = {}
        self.sources: dict[Node, bool] = {}
        self.variables: set[Node] = set()
        self.users: Edges = {}
        self._reads: Edges = {}
        self.given: Edges = {}
        """By argument, or result of a call, what is given for it, in a loop also by the last turn."""
        self.after: Edges = {}
        """As `users`, where a gradient may go from these."""
        self.takers: Edges = {}
        """As `users`, of data: who takes a result, or is given one."""
        self._handles: dict[int, list[Node]] = {}
        """By the id of a handle that graphs have captured its nodes."""
        self._uses: dict[int, list[Node]] = {}
        """By the same the ops that are given the handle."""
        self._carriers: set[Node] = set()
        """Nodes that may be handles."""
        self._calls = list(calls)
        self._known_zeros: list[Node] = []
        self._captured: dict[Node, Any] = {}
        """Tensors that were made before the graph, handles among them, by the argument that reads them."""
        self._sent: dict[Any, list[Any]] = {}
        """By an exchange of a device what all devices send in it."""
        for call in self._calls:
            self._sent |= exchanges(call.ops)
            if call.outer is None:
                self._add_inputs(call)
            for op in call.ops:
                self._add(call, op)
        for node, read in self._reads.items():
            for each in read:
                self.users.setdefault(each, []).append(node)
        beyond = {node: self.users.get(node, []) for node in self._carriers}
        for handle, nodes in self._handles.items():
            self._uses[handle] = [node for node in reached(nodes, beyond) if node in self.ops]
        self.zeros = self._zeros()
        self.multiplied = {node for node in self.zeros if self.type_of(node) not in ZEROS}
        self._needs: Edges = {**self._reads, **{node: [] for node in self.multiplied}}
        """As `_reads`: what is multiplied with 0 depends on nothing."""
        live = reached(self._reads.keys() - self.users.keys(), self._needs) - self.zeros
        self._gradients = {node for node in live if GRADIENT_SCOPE in node[1]}
        self._differentiated = {around(n.rpartition(GRADIENT_SCOPE)[2]) for _, n in self._gradients}
        self._differentiable = reached(self.sources, self.after) & self._into_numbers()

    def _into_numbers(self) -> set[Node]:
        """What ends in a number with a fraction, or in an op that keeps or writes one: of integers no gradient is taken."""
        before = _backwards(self.after)
        results = {node: self.ops[node].outputs if node in self.ops else () for node in before}
        ends = results.keys() - self.after.keys()
        return reached(
            (
                node
                for node in ends
                if not results[node] or any(map(_takes_gradients, results[node]))
            ),
            before,
        )

    def _zeros(self) -> set[Node]:
        """What is 0 whatever the step reads, as what a constant 0 is multiplied with."""
        zeros, waiting = set[Node](), self._known_zeros
        while waiting:
            node = waiting.pop()
            if node not in zeros:
                zeros.add(node)
                waiting += (
                    each for each in self.takers.get(node, ()) if self._is_zero(each, zeros)
                )
        return zeros

    def _is_zero(self, node: Node, zeros: set[Node]) -> bool:
        if node in self.given:
            return all(each in zeros for each in self.given[node])
        op = self.ops.get(node)
        if op is None or not op.outputs:
            return False
        return gives_zeros(op, [node_of(node[0], tensor) in zeros for tensor in op.inputs])

    def fixed(self, shapes: Mapping[int, Sequence[int]], trained: Collection[int]) -> set[Node]:
        """The sources that are variables which the graphs only read, but for what may be a copy of trained ones, made now and then.

        Such is a trained one with the shape of one that is updated; where those that are only read have the shapes of all that
        are updated, nothing is known. Vectors may have any shape.
        """
        read = {
            handle
            for handle in shapes.keys() & self._uses.keys()
            if all(self.ops[node].type in _ASKING for node in self._uses[handle])
        }
        several = {handle: tuple(shape) for handle, shape in shapes.items() if len(shape) > 1}
        of_updated = Counter(several[each] for each in several.keys() & {*trained} - read)
        if of_updated and of_updated <= Counter(several[each] for each in several.keys() & read):
            return set()
        read -= {each for each in trained if several.get(each) in of_updated}
        nodes = (node for each in read for node in (*self._handles[each], *self._uses[each]))
        return self.sources.keys() & nodes

    def replicas_of(self, of_batch: Collection[Node]) -> int:
        """How many replicas read the same of what depends on the batch alone; 0 where one reads other, or asks for its own."""
        replicas = set[str]()
        for call in self._calls:
            of_name = {op.name: op for op in call.ops}
            for op in call.ops if any("replica_" in name for name in of_name) else ():
                prefix = _REPLICA.search(op.name)
                if prefix is None:
                    continue
                if op.type.startswith(NEXT):
                    return 0
                first = of_name.get(op.name.replace(prefix[0], "", 1))
                for place, tensor in enumerate(op.inputs):
                    is_part = tensor.shape.rank != 0 and node_of(call, tensor) in of_batch
                    if prefix[0] in tensor.op.name or not is_part:
                        continue
                    if first is None or first.inputs[place] is not tensor:
                        return 0
                    replicas.add(prefix[0])
                # The number of the replica, or what else tells it which part to take.
                is_number = op.type == "Const" and op.outputs[0].dtype.is_integer
                if is_number and first and op.get_attr("value") != first.get_attr("value"):
                    return 0
        return len(replicas) + 1 if replicas else 0

    def summed_gradients(self) -> set[Node]:
        """Gradients through one op of which several are computed, all but one of them, where their results meet only in sums."""
        gradients = [node for node, op in self.ops.items() if GRADIENT_SCOPE in op.name]
        after = reached(gradients, self.users)
        alike: dict[Any, list[Node]] = {}
        for node in gradients:
            op = self.ops[node]
            others = tuple(each.name * (node_of(node[0], each) not in after) for each in op.inputs)
            if any(others) and "" in others:
                key = node[0], op.type, op.name.rpartition("/")[0], others
                alike.setdefault(key, []).append(node)
        equal = (nodes for each in alike.values() if len(each) > 1 for nodes in self._equal(each))
        several = [nodes for nodes in equal if len(nodes) > 1]
        of_products = [nodes for nodes in several if self.ops[nodes[0]].type in FLOPS_OF]
        left, products = MOST_VISITED, set[Node]()
        for nodes in of_products:
            ways = [self._linear(node, after, ()) for node in nodes]
            left -= sum(map(len, ways))
            met = set.intersection(*ways) & {node for node in after if self.type_of(node) in SUMS}
            if left < 0:
                break
            if met and all(None not in self._linear(node, after, met) for node in nodes):
                products.update(nodes)
        if not products:
            return products
        before = reached(products, {node: self._reads.get(node, []) for node in after})
        return {node for nodes in several if before.issuperset(nodes) for node in nodes[1:]}

    def dense(self, by_others: Collection[Node]) -> set[Node]:
        """What makes the sparse gradient of a table dense: something that depends on no batch and is added, with what computes that,
        or the script; and what is as large as the table behind that, up to its update, if nothing else is updated by it.
        """
        found = set[Node]()
        gradients = {each for each in self.ops if GRADIENT_SCOPE in each[1]} - {*by_others}
        optimizers = {around(name) for (_, name), op in self.ops.items() if op.type in _UPDATES}
        optimizers.discard("")
        tables = {node for uses in self._uses.values() if self._are_of_table(uses) for node in uses}
        for node, op in self.ops.items():
            added = [node_of(node[0], tensor) for tensor in op.inputs] if op.type in SUMS else []
            free = [each for each in added if each in gradients]
            made = [each for each in added if self.type_of(each) == "UnsortedSegmentSum"]
            is_of_script = _makes_dense(op) and around(op.name) not in optimizers
            behind = self._as_large(node) if (free and made) or is_of_script else set()
            updated = [each for each in behind if self.type_of(each) in _UPDATES]
            if len(updated) == 1 and updated[0] in tables:
                found |= reached(free, {each: self._reads[each] for each in gradients}) & gradients
                found.update(made, behind)
        return found

    def _are_of_table(self, uses: Iterable[Node]) -> bool:
        """Whether single rows of a variable are read, or all of it and then single rows, as Keras does."""
        return any(
            self.type_of(each).startswith("ResourceGather")
            or any(self.type_of(user) == "GatherV2" for user in self.users.get(each, ()))
            for each in uses
        )

    def _as_large(self, start: Node) -> set[Node]:
        """An op and what reads its result and is as large, or joined with others into an array that is mostly that, and updates."""
        size, found = self.ops[start].outputs[0].shape.num_elements() or 0, {start}
        # Of unknown sizes nothing is as large.
        waiting = [*self.ops[start].outputs] if size else []
        while waiting:
            tensor = waiting.pop()
            for user in tensor.consumers():
                own = start[0], user.name
                sizes = [each.shape.num_elements() or 0 for each in user.outputs]
                is_large = any(size <= each <= 2 * size for each in sizes)
                if user.type == "IdentityN":
                    # Keras hands all gradients through one of these.
                    places = (n for n, each in enumerate(user.inputs) if each is tensor)
                    waiting += (user.outputs[n] for n in places)
                elif own not in found and (is_large or user.type in _UPDATES):
                    found.add(own)
                    waiting += (
                        each for each, of in zip(user.outputs, sizes, strict=True) if of >= size
                    )
        return found

    def _equal(self, nodes: Iterable[Node]) -> Collection[list[Node]]:
        """Nodes in groups of equal attributes, such as which operand of a product is transposed."""
        groups: dict[str, list[Node]] = {}
        for node in nodes:
            own = self.ops[node].node_def.attr
            groups.setdefault(str([own[name] for name in sorted(own)]), []).append(node)
        return groups.values()

    def gradients(self, nodes: Iterable[Node]) -> set[Node]:
        """The gradients of some ops that have the names of these."""
        known = {*nodes}
        return {
            node
            for node, op in self.ops.items()
            if GRADIENT_SCOPE in op.name
            and (node[0], around(op.name.partition(GRADIENT_SCOPE)[2])) in known
        }

    def forward(self, types: Collection[str]) -> Iterator[tuple[Node, Any]]:
        """The ops of these types, but for gradients."""
        for node, op in self.ops.items():
            if op.type in types and GRADIENT_SCOPE not in op.name:
                yield node, op

    def type_of(self, node: Node) -> str:
        """The type of an op; "" of what is none."""
        return self.ops[node].type if node in self.ops else ""

    def _linear(
        self, start: Node, after: set[Node], ends: Collection[Node | None]
    ) -> set[Node | None]:
        """What adds and scales what is computed, up to these ends; None is among it where anything else reads it, or nothing does."""
        found, waiting = set[Node | None](), [start]
        while waiting:
            node = waiting.pop()
            if node in found:
                continue
            found.add(node)
            if node in ends:
                continue
            users = self.users.get(node, ())
            if not users:
                found.add(None)
            for user in users:
                given = [each in after for each in self._reads[user]]
                type_, scales = self.type_of(user), GRADIENT_SCOPE in user[1]
                scales = sum(given) == 1 and (scales or type_ in SCALING)
                if scales or not type_ or type_ in SUMS:
                    waiting.append(user)
                else:
                    found.add(None)
        return found

    def constant(self, call: Call, tensor: Any, fixed: Collection[Node]) -> Any:
        """The numbers of a tensor that are the same in each step, an array of NumPy; None where they are not known to be.

        `fixed`: variables that nothing changes.
        """
        made, tensorflow = source(tensor), sys.modules["tensorflow"]
        if not 0 < (made.shape.num_elements() or 0) <= _MOST_NUMBERS:
            return None
        node = self.root(node_of(call, made))
        if node in self._captured:
            return self._captured[node].numpy()
        op = self.ops.get(node)
        if op is None or len(op.outputs) != 1:
            return None
        if op.type != "ReadVariableOp":
            return tensorflow.get_static_value(op.outputs[0])
        handle = self.root(node_of(node[0], op.inputs[0]))
        if handle not in fixed or handle not in self._captured:
            return None
        given = {"resource": self._captured[handle], "dtype": made.dtype}
        # The script may have deleted it, or its worker may be gone.
        with suppress(tensorflow.errors.OpError):
            return tensorflow.raw_ops.ReadVariableOp(**given).numpy()
        return None

    def root(self, node: Node) -> Node:
        """What a node is given, by whatever calls, if that is one thing."""
        while len(given := self.given.get(node, [])) == 1:
            node = given[0]
        return node

    def is_of_loss(self, node: Node) -> bool:
        """Whether a gradient may have been taken through an op, without reading its result."""
        op = self.ops[node]
        # Gradients of products have the name of the product, others that of the scope around.
        scopes = {op.name} if op.type in FLOPS_OF else {op.name, op.name.rpartition("/")[0]}
        is_float = all(tensor.dtype.is_floating for tensor in op.outputs)
        is_float = is_float and any(tensor.dtype.is_floating for tensor in op.inputs)
        is_float = is_float and node in self._differentiable
        return is_float and not self._differentiated.isdisjoint(scopes)

    def moved(self, trained: Collection[int]) -> set[int]:
        """Those of some variables whose update a gradient reaches, also by way of what no gradient depends on, as moments; all where
        none is seen. A graph without gradients may be given them.
        """
        gradients = (each for each in self._reads if GRADIENT_SCOPE in each[1])
        of_gradients = reached(gradients, _backwards(self.takers))
        computing = {call.root for call, _ in of_gradients}
        given = (
            each for each in self.sources.keys() - self.variables if each[0].root not in computing
        )
        kept = [nodes for nodes in self._uses.values() if of_gradients.isdisjoint(nodes)]
        changed = {node: nodes for nodes in kept for node in nodes}
        after = {
            node: [each for each in takers if each not in self.zeros]
            for node, takers in self.takers.items()
        }
        found = reached([*self._gradients, *given], after, changed)
        moved = {handle for handle in trained if not found.isdisjoint(self._uses.get(handle, ()))}
        return moved or {*trained}

    def idle(self, trained: Collection[int], moved: Collection[int]) -> set[Node]:
        """What updates of trained variables by nothing but zeros depend on: neither on those that are `moved`, nor on the batch."""
        changes = {node: nodes for nodes in self._uses.values() for node in nodes}
        arrays = (node for node in self.zeros & self.ops.keys() if is_array(self.ops[node]))
        found = reached(arrays, self.after, changes)
        uses = (node for handle in trained for node in self._uses.get(handle, ()))
        others = {node for handle in moved for node in self._uses.get(handle, ())}
        others |= {node for node, is_state in self.sources.items() if not is_state}
        found -= reached(others, _backwards(self._needs))
        updates = [
            node for node in uses if self.type_of(node).startswith(_ASSIGNS) and node in found
        ]
        return reached(updates, self._reads, changes)

    def needed(self, trained: Collection[int]) -> set[Node]:
        """What updates of trained variables depend on, as do all changes of what these read; empty without an update by gradients."""
        roots = [node for handle in trained for node in self._uses.get(handle, ())]
        uses = self._handles.items()
        changes = {node: self._uses[handle] for handle, nodes in uses for node in nodes}
        found = reached(roots, self._needs, changes)
        # Gradients that are returned may be applied elsewhere.
        return found if any(GRADIENT_SCOPE in name for _, name in found) else set()

    def _add_inputs(self, call: Call) -> None:
        captured = {inside.name: given for given, inside in call.graph.captures}
        for tensor in call.graph.inputs:
            node, given = (call, tensor.op.name), captured.get(tensor.name)
            is_handle = tensor.dtype.name in HANDLES
            is_tensor = given is not None and hasattr(given, "numpy")
            if is_tensor:
                self._captured[node] = given
            if is_handle or not is_tensor:
                self.sources[node] = given is not None or is_handle
            if is_handle:
                self.variables.add(node)
            if given is not None and is_handle:
                self._handles.setdefault(id(given), []).append(node)

    def _add(self, call: Call, op: Any) -> None:
        own = call, op.name
        if any(tensor.dtype.name in HANDLES for tensor in op.outputs):
            self._carriers.update(node_of(call, tensor) for tensor in op.outputs)
        reads = self._reads.setdefault(own, [])
        if call.outer is not None:
            reads.append((call.outer, call.op.name))
        if op.name in call.inner:
            self._add_call(call, op, reads)
            return
        self.ops[own] = op
        if makes_zeros(op):
            self._known_zeros.append(own)
        if op.type in APART:
            parts = parts_of(op, self._sent)
            for place, tensor in enumerate(op.outputs):
                self._reads[call, tensor.name] = [own]
                given = [node_of(call, each[place]) for each in parts] or [own]
                self._give((call, tensor.name), tensor, given)
        if op.type == "IdentityN":
            reads += ((call, each.name) for each in op.control_inputs)
            return
        if op in self._sent:
            self._give(own, op.outputs[0], [node_of(call, each) for each in self._sent[op]])
        if op.type.startswith(NEXT):
            self.sources[own] = False
            return
        reads += (node_of(call, tensor) for tensor in op.inputs)
        self._hand([node_of(call, tensor) for tensor in op.inputs], own)
        for tensor in op.inputs if op.type != "StopGradient" else ():
            self._lead(tensor, own, [node_of(call, tensor)])
        reads += ((call, each.name) for each in op.control_inputs)
        if op._is_stateful:
            self.sources[own] = True
        if op.type in _READS:
            self.variables.add(own)

    def _add_call(self, call: Call, op: Any, decide: list[Node]) -> None:
        inner, is_loop = call.inner[op.name], op.type in LOOPS
        inputs = [node_of(call, tensor) for tensor in op.inputs]
        returned = [[node_of(each, tensor) for tensor in each.graph.outputs] for each in inner]
        decide += ((call, each.name) for each in op.control_inputs)
        if is_loop:
            # A `While` has a condition; of loops over a dataset anything may depend on all.
            decide += returned[0] if len(inner) > 1 else [*inputs, *returned[0]]
            returned = [inputs, returned[-1]]
        elif op.type not in CALLS:
            decide += inputs[:1]
        for each in inner:
            for place, (argument, given) in enumerate(each.arguments()):
                last = returned[1][place : place + 1] if is_loop else ()
                self._give((each, argument.op.name), argument, [node_of(call, given), *last])
        for place, tensor in enumerate(op.outputs):
            results = [node for each in returned for node in each[place : place + 1]]
            self._reads[call, tensor.name] = [(call, op.name)]
            self._give((call, tensor.name), tensor, results)

    def _give(self, own: Node, tensor: Any, given: list[Node]) -> None:
        self.given[own] = given
        self._reads.setdefault(own, []).extend(given)
        self._hand(given, own)
        self._lead(tensor, own, given)

    def _hand(self, nodes: Iterable[Node], to: Node) -> None:
        for node in nodes:
            self.takers.setdefault(node, []).append(to)

    def _lead(self, tensor: Any, to: Node, nodes: Iterable[Node]) -> None:
        if _takes_gradients(tensor):
            for node in nodes:
                self.after.setdefault(node, []).append(to)


def _takes_gradients(tensor: Any) -> bool:
    return not (tensor.dtype.is_integer or tensor.dtype.name in _NO_GRADIENT)


_MOST_LOOKED_UP: Final = 1 / 4
"""Of the rows of a table: with 9,088 look-ups of 20,000 rows a step took as long with a sparse gradient. A choice of ours."""


def _makes_dense(op: Any) -> bool:
    """Whether it is the conversion of a sparse gradient, perhaps of several look-ups, by what is no gradient."""
    if op.type != "UnsortedSegmentSum" or GRADIENT_SCOPE in op.name:
        return False
    if (relative_size(op.inputs[0], op.outputs[0]) or 0.0) > _MOST_LOOKED_UP:
        return False
    rows = op.inputs[0].op
    made = [*(each.op for each in rows.inputs), rows] if rows.type == "ConcatV2" else [rows]
    return any(GRADIENT_SCOPE in each.name for each in made)


def node_of(call: Call, tensor: Any) -> Node:
    """The node that a tensor is a result of."""
    has_own = tensor.op.name in call.inner or tensor.op.type in APART
    return call, tensor.name if has_own else tensor.op.name
