"""Follows what flows through the graphs of step functions: which ops compute in float64, the same in every step, from the batch
alone or from variables alone, which train nothing, through which no gradient goes, and which repeat what others do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from traceview.graphs.calls import (
    CALLS,
    GRADIENT_SCOPE,
    HANDLES,
    LOOPS,
    MOST_VISITED,
    Call,
    calls_of,
)
from traceview.graphs.flops import FLOPS_OF
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

_NO_WORK: Final = frozenset((
    "Const", "Identity", "IdentityN", "NoOp", "Placeholder", "PlaceholderWithDefault", "ReadVariableOp", "Shape",
))  # fmt: skip
_IN_64_BITS: Final = frozenset(("float64", "complex128"))
_NEXT: Final = "IteratorGetNext"
_READS: Final = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd"))
_ASKING: Final = {*_READS, "Placeholder", "VariableShape"}
_UPDATES: Final = frozenset(("AssignAddVariableOp", "AssignSubVariableOp"))
_ASSIGNS: Final = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
"""How the types of ops begin that change variables."""
_NO_GRADIENT: Final = frozenset(("bool", "resource", "string"))
_LOOKUPS: Final = {"Gather": 1, "GatherV2": 1, "ResourceGather": 1, "OneHot": 0}
"""Ops that make numbers of ids, and which of their inputs these are."""
_JOINS: Final = {
    "Cast": slice(1), "ConcatV2": slice(-1), "ExpandDims": slice(1), "GatherV2": slice(1), "Identity": slice(1), "Pack": slice(None),
    "Reshape": slice(1), "Squeeze": slice(1), "StridedSlice": slice(1), "TensorListSetItem": slice(0, 3, 2),
    "TensorListStack": slice(1), "TensorScatterUpdate": slice(0, 3, 2), "Transpose": slice(1),
}  # fmt: skip
"""Ops whose result has all that some of their inputs have, and which these are, as far as they are what `_keeps` asks for."""
_MASKS: Final = ("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_KINDS: Final = (
    "float64", "constant", "batch", "variable", "untrained", "fixed", "summed", "dense", "again", "idle",
)  # fmt: skip
_REPLICA: Final = re.compile(r"(?<![^/])(replica_[1-9]\d{0,5})/")


def describe_values(
    graphs: Iterable[Any], shapes: Mapping[int, Sequence[int]], trained: Collection[int] = ()
) -> dict[str, Any]:
    """The names of ops in float64, of those that read only constants and tensors made before the graph, of those that besides read
    only the batch, or only variables, and of those that train nothing; none for names of others. `fixed_ops` are those of the second
    and third that read variables which nothing changes; `same_batch`: how many replicas read the same batch, 0 unless all do.

    `shapes`: of variables, by the ids of their handles; `trained`: of these the trained ones, without an update of one of
    which batch, variable and untrained ops are not known.
    """
    flow = _Flow(calls_of(graphs))
    fixed = flow.fixed(shapes, trained)
    states = (node for node, is_state in flow.sources.items() if is_state and node not in fixed)
    changing = reached(flow.sources.keys() - fixed, flow.users)
    by_fixed, by_state = reached(fixed, flow.users), reached(states, flow.users)
    by_others = reached(flow.sources.keys() - flow.variables, flow.users)
    moved = flow.moved(trained)
    needed = flow.needed(moved) - (changing & flow.multiplied)
    idle = flow.idle({*trained} - moved) - needed if needed else set()
    # Where the only data are a tensor made before the graph, all that reads it reads no batch.
    has_batch = bool(needed) and not all(flow.sources.values())
    forward = {node for node, op in flow.ops.items() if GRADIENT_SCOPE not in op.name}
    works = {node for node in forward if flow.ops[node].type not in _NO_WORK}
    free = {name for _, name in works & changing - by_others}
    scopes = {*free, *map(_scope, free)} - {"", *(_scope(name) for _, name in forward & by_others)}
    summed = flow.summed_gradients() if needed else set()
    dense = flow.dense(by_others) if has_batch else set()
    again = flow.decoded_again() & needed if needed else set()
    kinds: dict[str, set[str]] = {}
    for node, op in flow.ops.items():
        if op.type in _NO_WORK:
            continue
        own = set()
        if not _IN_64_BITS.isdisjoint(tensor.dtype.name for tensor in op.outputs):
            own.add("float64")
        if node in idle:
            own.add("idle")
        elif node not in changing:
            own.add("constant")
        elif needed and node not in needed and not flow.is_of_loss(node):
            own.add("untrained")
        elif needed and node not in by_state and not (op.type.startswith(_NEXT) or _widens(op)):
            own.add("batch")
        elif has_batch and (node not in by_others or _scope(op.name) in scopes):
            own.add("variable")
        if node in by_fixed and not own.isdisjoint(("constant", "batch")):
            own.add("fixed")
        also = (("summed", summed), ("dense", dense), ("again", again))
        own.update(kind for kind, nodes in also if node in nodes)
        for name in node[0].names_of(op):
            kinds[name] = kinds.get(name, own) & own
    ops = {
        f"{kind}_ops": [name for name, own in kinds.items() if kind in own][:1_000]
        for kind in _KINDS
    }
    return {**ops, "same_batch": flow.replicas_of(changing - by_state) if needed else 0}


def _widens(op: Any) -> bool:
    """Whether an op casts to a larger type: what the step is given before is less to hand over, and to copy to a GPU."""
    return op.type == "Cast" and bool(op.outputs[0].dtype.size > op.inputs[0].dtype.size)


def _scope(name: str) -> str:
    """The scope of an op; of a gradient that of the op that it is of."""
    return _around(name.rpartition(GRADIENT_SCOPE)[2])


def _around(name: str) -> str:
    return name.rpartition("/")[0]


_Node: TypeAlias = tuple[Call, str]
"""An op of a call, or a result of an op that calls; that op itself is whether, and how often, it calls."""
_Edges: TypeAlias = dict[_Node, list[_Node]]


def reached(starts: Iterable[_Node], *edges: _Edges) -> set[_Node]:
    """The nodes that edges lead to, with the starts."""
    found, waiting = set[_Node](), list(starts)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += (after for each in edges for after in each.get(node, ()))
    return found


def _backwards(edges: _Edges) -> _Edges:
    found: _Edges = {}
    for node, following in edges.items():
        for each in following:
            found.setdefault(each, []).append(node)
    return found


class _Flow:
    """What ops read and wait for (`reads`), and who reads them (`users`). `sources`: what may differ from step to step, and whether
    that is any other state than the batch; `variables`: those that are handles, or only read one.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        self.ops: dict[_Node, Any] = {}
        self.sources: dict[_Node, bool] = {}
        self.variables: set[_Node] = set()
        self.users: _Edges = {}
        self._reads: _Edges = {}
        self._given: _Edges = {}
        """By argument, or result of a call, what is given for it, in a loop also by the last turn."""
        self._after: _Edges = {}
        """As `users`, where a gradient may go from these."""
        self._takers: _Edges = {}
        """As `users`, of data: who takes a result, or is given one."""
        self._handles: dict[int, list[_Node]] = {}
        """By the id of a handle that graphs have captured its nodes."""
        self._uses: dict[int, list[_Node]] = {}
        """By the same the ops that are given the handle."""
        self._carriers: set[_Node] = set()
        """Nodes that may be handles."""
        self._calls = list(calls)
        self._known_zeros: list[_Node] = []
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
        self.multiplied = {node for node in self.zeros if self._type(node) not in ZEROS}
        self._needs: _Edges = {**self._reads, **{node: [] for node in self.multiplied}}
        """As `_reads`: what is multiplied with 0 depends on nothing."""
        live = reached(self._reads.keys() - self.users.keys(), self._needs) - self.zeros
        self._gradients = {node for node in live if GRADIENT_SCOPE in node[1]}
        self._differentiated = {
            _around(n.rpartition(GRADIENT_SCOPE)[2]) for _, n in self._gradients
        }
        self._differentiable = reached(self.sources, self._after) & self._into_numbers()

    def _into_numbers(self) -> set[_Node]:
        """What ends in a number with a fraction, or in an op that keeps or writes one: of integers no gradient is taken."""
        before = _backwards(self._after)
        results = {node: self.ops[node].outputs if node in self.ops else () for node in before}
        ends = results.keys() - self._after.keys()
        return reached(
            (
                node
                for node in ends
                if not results[node] or any(map(_takes_gradients, results[node]))
            ),
            before,
        )

    def _zeros(self) -> set[_Node]:
        """What is 0 whatever the step reads, as what a constant 0 is multiplied with."""
        zeros, waiting = set[_Node](), self._known_zeros
        while waiting:
            node = waiting.pop()
            if node not in zeros:
                zeros.add(node)
                waiting += (
                    each for each in self._takers.get(node, ()) if self._is_zero(each, zeros)
                )
        return zeros

    def _is_zero(self, node: _Node, zeros: set[_Node]) -> bool:
        if node in self._given:
            return all(each in zeros for each in self._given[node])
        op = self.ops.get(node)
        if op is None or not op.outputs:
            return False
        return gives_zeros(op, [_node(node[0], tensor) in zeros for tensor in op.inputs])

    def fixed(self, shapes: Mapping[int, Sequence[int]], trained: Collection[int]) -> set[_Node]:
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

    def replicas_of(self, of_batch: Collection[_Node]) -> int:
        """How many replicas read the same of what depends on the batch alone; 0 where one reads other, or asks for its own."""
        replicas = set[str]()
        for call in self._calls:
            of_name = {op.name: op for op in call.ops}
            for op in call.ops if any("replica_" in name for name in of_name) else ():
                prefix = _REPLICA.search(op.name)
                if prefix is None:
                    continue
                if op.type.startswith(_NEXT):
                    return 0
                first = of_name.get(op.name.replace(prefix[0], "", 1))
                for place, tensor in enumerate(op.inputs):
                    is_part = tensor.shape.rank != 0 and _node(call, tensor) in of_batch
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

    def summed_gradients(self) -> set[_Node]:
        """Gradients through one op of which several are computed, all but one of them, where their results meet only in sums."""
        gradients = [node for node, op in self.ops.items() if GRADIENT_SCOPE in op.name]
        after = reached(gradients, self.users)
        alike: dict[Any, list[_Node]] = {}
        for node in gradients:
            op = self.ops[node]
            others = tuple(each.name * (_node(node[0], each) not in after) for each in op.inputs)
            if any(others) and "" in others:
                key = node[0], op.type, op.name.rpartition("/")[0], others
                alike.setdefault(key, []).append(node)
        equal = (nodes for each in alike.values() if len(each) > 1 for nodes in self._equal(each))
        several = [nodes for nodes in equal if len(nodes) > 1]
        of_products = [nodes for nodes in several if self.ops[nodes[0]].type in FLOPS_OF]
        left, products = MOST_VISITED, set[_Node]()
        for nodes in of_products:
            ways = [self._linear(node, after, ()) for node in nodes]
            left -= sum(map(len, ways))
            met = set.intersection(*ways) & {node for node in after if self._type(node) in SUMS}
            if left < 0:
                break
            if met and all(None not in self._linear(node, after, met) for node in nodes):
                products.update(nodes)
        if not products:
            return products
        before = reached(products, {node: self._reads.get(node, []) for node in after})
        return {node for nodes in several if before.issuperset(nodes) for node in nodes[1:]}

    def dense(self, by_others: Collection[_Node]) -> set[_Node]:
        """What makes the sparse gradient of a table dense: something that depends on no batch and is added, with what computes that,
        or the script; and what is as large as the table behind that, up to its update, if nothing else is updated by it.
        """
        found = set[_Node]()
        gradients = {each for each in self.ops if GRADIENT_SCOPE in each[1]} - {*by_others}
        optimizers = {_around(name) for (_, name), op in self.ops.items() if op.type in _UPDATES}
        optimizers.discard("")
        tables = {node for uses in self._uses.values() if self._are_of_table(uses) for node in uses}
        for node, op in self.ops.items():
            added = [_node(node[0], tensor) for tensor in op.inputs] if op.type in SUMS else []
            free = [each for each in added if each in gradients]
            made = [each for each in added if self._type(each) == "UnsortedSegmentSum"]
            is_of_script = _makes_dense(op) and _around(op.name) not in optimizers
            behind = self._as_large(node) if (free and made) or is_of_script else set()
            updated = [each for each in behind if self._type(each) in _UPDATES]
            if len(updated) == 1 and updated[0] in tables:
                found |= reached(free, {each: self._reads[each] for each in gradients}) & gradients
                found.update(made, behind)
        return found

    def _are_of_table(self, uses: Iterable[_Node]) -> bool:
        """Whether single rows of a variable are read, or all of it and then single rows, as Keras does."""
        return any(
            self._type(each).startswith("ResourceGather")
            or any(self._type(user) == "GatherV2" for user in self.users.get(each, ()))
            for each in uses
        )

    def _as_large(self, start: _Node) -> set[_Node]:
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

    def decoded_again(self) -> set[_Node]:
        """Passes over ids that a later one repeats with those that were drawn from them, and through which no gradient goes.

        A pass begins where ids are looked up. Of three, each with all ids of the last, the second; in a loop with those of the last turn.
        """
        lookups = {node: op for node, op in self.ops.items() if op.type in _LOOKUPS}
        made, joins = reached(lookups, self.users), dict(self._given)
        for node, op in self.ops.items():
            if op.type in _JOINS and _keeps(op):
                joins[node] = [_node(node[0], each) for each in list(op.inputs)[_JOINS[op.type]]]
        found, left = set[_Node](), MOST_VISITED
        passes: list[tuple[set[_Node], set[_Node]]] = []
        for node, op in lookups.items():
            ids = op.inputs[_LOOKUPS[op.type]]
            joined = reached([_node(node[0], ids)], joins)
            drawn = (joined & made) - joins.keys()
            after = reached([node], self._after) if drawn else drawn
            left -= len(joined) + len(after)
            is_trained = any(GRADIENT_SCOPE in name for _, name in after)
            if left < 0:
                return set()
            if is_trained or not self._has_places(after, ids.shape):
                continue
            passes.append((drawn, after))
            for each in joined & self._given.keys():
                last = reached(self._given[each], joins)
                left -= len(last)
                if left < 0:
                    return set()
                # Of a loop, which gives what it was given and what it draws.
                if each in last and any(each[0] in (of, of.outer) for of, _ in last & drawn):
                    found |= after
        for drawn, after in passes if len(passes) ** 2 < MOST_VISITED else ():
            if any(drawn < each for each, _ in passes) and any(each < drawn for each, _ in passes):
                found |= after
        return found

    def _has_places(self, nodes: Iterable[_Node], shape: Any) -> bool:
        """Whether products among these have a row for each element of such a shape, which has several."""
        sizes = shape.as_list() if shape.rank else [1]
        products = (self.ops[node] for node in nodes if self._type(node) in FLOPS_OF)
        results = ((op, *op.outputs[0].consumers()) for op in products if sizes[-1] != 1)
        shapes = (tensor.shape for ops in results for op in ops for tensor in op.outputs)
        return any(each.rank and each[: len(sizes)].as_list() == sizes for each in shapes)

    def _equal(self, nodes: Iterable[_Node]) -> Collection[list[_Node]]:
        """Nodes in groups of equal attributes, such as which operand of a product is transposed."""
        groups: dict[str, list[_Node]] = {}
        for node in nodes:
            own = self.ops[node].node_def.attr
            groups.setdefault(str([own[name] for name in sorted(own)]), []).append(node)
        return groups.values()

    def _type(self, node: _Node) -> str:
        return self.ops[node].type if node in self.ops else ""

    def _linear(
        self, start: _Node, after: set[_Node], ends: Collection[_Node | None]
    ) -> set[_Node | None]:
        """What adds and scales what is computed, up to these ends; None is among it where anything else reads it, or nothing does."""
        found, waiting = set[_Node | None](), [start]
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
                type_, scales = self._type(user), GRADIENT_SCOPE in user[1]
                scales = sum(given) == 1 and (scales or type_ in SCALING)
                if scales or not type_ or type_ in SUMS:
                    waiting.append(user)
                else:
                    found.add(None)
        return found

    def is_of_loss(self, node: _Node) -> bool:
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
        of_gradients = reached(gradients, _backwards(self._takers))
        computing = {call.root for call, _ in of_gradients}
        given = (
            each for each in self.sources.keys() - self.variables if each[0].root not in computing
        )
        kept = [nodes for nodes in self._uses.values() if of_gradients.isdisjoint(nodes)]
        changed = {node: nodes for nodes in kept for node in nodes}
        after = {
            node: [each for each in takers if each not in self.zeros]
            for node, takers in self._takers.items()
        }
        found = reached([*self._gradients, *given], after, changed)
        moved = {handle for handle in trained if not found.isdisjoint(self._uses.get(handle, ()))}
        return moved or {*trained}

    def idle(self, trained: Collection[int]) -> set[_Node]:
        """What updates of variables by nothing but zeros depend on."""
        changes = {node: nodes for nodes in self._uses.values() for node in nodes}
        arrays = (node for node in self.zeros & self.ops.keys() if is_array(self.ops[node]))
        found = reached(arrays, self._after, changes)
        uses = (node for handle in trained for node in self._uses.get(handle, ()))
        updates = [node for node in uses if self._type(node).startswith(_ASSIGNS) and node in found]
        return reached(updates, self._reads, changes)

    def needed(self, trained: Collection[int]) -> set[_Node]:
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
            if given is None or is_handle or not hasattr(given, "numpy"):
                self.sources[node] = given is not None or is_handle
            if is_handle:
                self.variables.add(node)
            if given is not None and is_handle:
                self._handles.setdefault(id(given), []).append(node)

    def _add(self, call: Call, op: Any) -> None:
        own = call, op.name
        if any(tensor.dtype.name in HANDLES for tensor in op.outputs):
            self._carriers.update(_node(call, tensor) for tensor in op.outputs)
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
                given = [_node(call, each[place]) for each in parts] or [own]
                self._give((call, tensor.name), tensor, given)
        if op.type == "IdentityN":
            reads += ((call, each.name) for each in op.control_inputs)
            return
        if op in self._sent:
            self._give(own, op.outputs[0], [_node(call, each) for each in self._sent[op]])
        if op.type.startswith(_NEXT):
            self.sources[own] = False
            return
        reads += (_node(call, tensor) for tensor in op.inputs)
        self._hand([_node(call, tensor) for tensor in op.inputs], own)
        for tensor in op.inputs if op.type != "StopGradient" else ():
            self._lead(tensor, own, [_node(call, tensor)])
        reads += ((call, each.name) for each in op.control_inputs)
        if op._is_stateful:
            self.sources[own] = True
        if op.type in _READS:
            self.variables.add(own)

    def _add_call(self, call: Call, op: Any, decide: list[_Node]) -> None:
        inner, is_loop = call.inner[op.name], op.type in LOOPS
        inputs = [_node(call, tensor) for tensor in op.inputs]
        returned = [[_node(each, tensor) for tensor in each.graph.outputs] for each in inner]
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
                self._give((each, argument.op.name), argument, [_node(call, given), *last])
        for place, tensor in enumerate(op.outputs):
            results = [node for each in returned for node in each[place : place + 1]]
            self._reads[call, tensor.name] = [(call, op.name)]
            self._give((call, tensor.name), tensor, results)

    def _give(self, own: _Node, tensor: Any, given: list[_Node]) -> None:
        self._given[own] = given
        self._reads.setdefault(own, []).extend(given)
        self._hand(given, own)
        self._lead(tensor, own, given)

    def _hand(self, nodes: Iterable[_Node], to: _Node) -> None:
        for node in nodes:
            self._takers.setdefault(node, []).append(to)

    def _lead(self, tensor: Any, to: _Node, nodes: Iterable[_Node]) -> None:
        if _takes_gradients(tensor):
            for node in nodes:
                self._after.setdefault(node, []).append(to)


def _takes_gradients(tensor: Any) -> bool:
    return not (tensor.dtype.is_integer or tensor.dtype.name in _NO_GRADIENT)


def _keeps(op: Any) -> bool:
    """Whether an op gives its input in as many dimensions, and of each that it cuts several or the first; true of what cuts none."""
    if op.type not in ("StridedSlice", "GatherV2"):
        return True
    before, after = op.inputs[0].shape, op.outputs[0].shape
    masks = [*map(op.get_attr, _MASKS)] if op.type == "StridedSlice" else [1]
    if before.rank is None or before.rank != after.rank or any(masks[1:]):
        return False
    sizes = enumerate(zip(before.as_list(), after.as_list(), strict=True))
    return all(
        masks[0] >> place & 1 if size is None else size == whole or size > 1
        for place, (whole, size) in sizes
    )


def _makes_dense(op: Any) -> bool:
    """Whether it is the conversion of a sparse gradient, perhaps of several look-ups, by what is no gradient."""
    if op.type != "UnsortedSegmentSum" or GRADIENT_SCOPE in op.name:
        return False
    rows = op.inputs[0].op
    made = [*(each.op for each in rows.inputs), rows] if rows.type == "ConcatV2" else [rows]
    return any(GRADIENT_SCOPE in each.name for each in made)


def _node(call: Call, tensor: Any) -> _Node:
    has_own = tensor.op.name in call.inner or tensor.op.type in APART
    return call, tensor.name if has_own else tensor.op.name
