"""What flows through graphs of TensorFlow: variables that nothing changes, a batch that several replicas read, and sums of gradients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.capture.conftest import run_python

pytestmark = pytest.mark.tensorflow

SCRIPT = """
import json
import numpy as np
import tensorflow as tf
from traceview.graphs.calls import is_concrete, makes_batches, traces, updates_alone
from traceview.graphs.values import describe_values

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
frozen, head = tf.Variable(tf.ones([6, 8])), tf.Variable(tf.ones([8, 3]))
rate = tf.Variable(0.1, trainable=False)
ONES = tf.ones([4, 6])


def described(function, *arguments, of=(frozen, head, rate)):
    graph = function.get_concrete_function(*arguments).graph
    handles = {id(each.handle): each for each in of}
    shapes = {handle: each.shape.as_list() for handle, each in handles.items()}
    return describe_values([graph], shapes, {handle for handle, each in handles.items() if each.trainable})


def trains(loss_of, *variables):
    def step(*arguments):
        with tf.GradientTape() as tape:
            loss = loss_of(*arguments)
        for one, slope in zip(variables, tape.gradient(loss, variables)):
            if slope is not None:
                one.assign_sub(slope)

    return tf.function(step)


def types_of(names, step):
    types = {op.name: op.type for op in step.get_concrete_function(ONES).graph.get_operations()}
    return [types[name] for name in names]


def stepped(layer, head, changes):
    def step(x):
        with tf.GradientTape() as tape:
            scores = tf.matmul(tf.matmul(x, layer, name="product"), head, name="scores")
            loss = tf.reduce_sum(tf.square(scores))
        style = tf.matmul(layer, layer, transpose_a=True, name="style")
        head.assign_sub(rate * tape.gradient(loss, head))
        if changes:
            layer.assign_add(layer)
        return loss + style[0, 0]

    return tf.function(step)


result = {}
twin = tf.Variable(tf.ones([8, 8]))
double = tf.Variable(tf.ones([8, 8]))
result["fixed"] = described(stepped(frozen, head, False), ONES + 1)
result["changed"] = described(stepped(frozen, head, True), ONES + 1)
target = tf.Variable(tf.ones([8, 8]), trainable=False)
result["target"] = described(stepped(target, double, False), tf.ones([4, 8]), of=(target, double, rate))
# One that another function trains: not all trained ones have copies.
other = tf.Variable(tf.ones([5, 5]))
result["copied"] = described(stepped(twin, double, False), tf.ones([4, 8]), of=(twin, double, rate, other))


def losses(combine, alike=False):
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            shared = tf.tanh(tf.matmul(x, frozen, name="product"), name="bent")
            if alike:
                shared = tf.matmul(shared, shared, transpose_a=True, name="squared")
            scores = tf.matmul(shared, head, name="scores")
            first, second = tf.reduce_sum(scores), tf.reduce_mean(scores * scores)
            total = first + second
        if alike:
            gradient = tape.gradient(total, frozen)
        else:
            gradient = combine(tape.gradient(first, frozen), tape.gradient(second, frozen))
        frozen.assign_sub(gradient)

    return described(tf.function(step), ONES)


result["summed"] = losses(lambda one, other: 5.0 * one + other / 2.0)
result["projected"] = losses(lambda one, other: one + other - one * tf.reduce_sum(one * other))
result["multiplied"] = losses(lambda one, other: one + other + one * other)
result["clipped"] = losses(lambda one, other: tf.clip_by_norm(one, 1.0) + other)
result["alike"] = losses(None, alike=True)


def picked(pick):
    def loss_of(x):
        scores = tf.nn.relu(tf.matmul(x, frozen, name="product"), name="bent")
        return tf.reduce_sum(tf.matmul(pick(scores), head, name="scores"))

    return described(trains(loss_of, frozen), tf.ones([12, 6]))


result["picked"] = picked(lambda scores: scores[::4])
result["taken"] = picked(lambda scores: tf.gather(scores, [3]) + tf.cast(tf.raw_ops.Shape(input=scores)[0], tf.float32))
result["diagonal"] = picked(lambda scores: tf.linalg.diag_part(scores)[None])
result["picked twice"] = picked(lambda scores: scores[::4] + scores[1::4])
result["half picked"] = picked(lambda scores: scores[::2])
result["read whole"] = picked(lambda scores: scores[::4] + tf.reduce_mean(scores))

table, mean = tf.Variable(tf.ones([90, 6])), tf.Variable(tf.zeros([90, 6]), trainable=False)


def looked_up(decays_all, with_mean=False, is_checked=False, ids=(1, 2, 1, 0)):
    def step(x, ids):
        with tf.GradientTape() as tape:
            rows = tf.gather(table, ids)
            loss = tf.reduce_sum(tf.square(rows + tf.reduce_mean(x)))
            loss += tf.reduce_sum(tf.square(table if decays_all else rows, name="squares"))
        gradient = tape.gradient(loss, table)
        if decays_all:
            table.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        elif with_mean:
            mean.assign_add(0.1 * (tf.convert_to_tensor(gradient) - mean))
            table.assign_sub(mean)
        elif is_checked:
            dense = tf.convert_to_tensor(gradient)
            table.assign_sub(0.1 * tf.where(tf.math.is_finite(dense), dense, 0.0))
        else:
            table.scatter_sub(gradient)

    return described(tf.function(step), ONES, tf.constant(ids), of=(table, mean))


result["all"], result["rows"], result["mean"] = looked_up(True), looked_up(False), looked_up(False, True)
result["checked"] = looked_up(False, is_checked=True)
result["checked of many"] = looked_up(False, is_checked=True, ids=[*range(24)])

strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    weight = tf.Variable(tf.ones([6, 8]))


def replicated(part):
    def replica_step(x, factor):
        with tf.GradientTape() as tape:
            loss = factor * tf.reduce_sum(tf.matmul(part(x), weight))
        gradient = tape.gradient(loss, weight)
        weight.assign_sub(tf.distribute.get_replica_context().all_reduce("sum", gradient))
        return loss

    return replica_step


def number():
    return tf.distribute.get_replica_context().replica_id_in_sync_group


@tf.function
def whole(x, factor):
    return strategy.run(replicated(lambda x: x), args=(x, factor))


@tf.function
def sliced(x, factor):
    return strategy.run(replicated(lambda x: x[2 * number() : 2 * number() + 2]), args=(x, factor))


@tf.function
def divided(x, other, factor):
    values = strategy.experimental_distribute_values_from_function(
        lambda context: (x, other)[context.replica_id_in_sync_group]
    )
    return strategy.run(replicated(lambda x: x), args=(values, factor))


places = tf.Variable(tf.ones([6, 20]))
MODEL = (table, frozen, places)


def scored(ids, name):
    with tf.name_scope(name):
        x = tf.gather(table, ids)
        x = tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x)
        return tf.tensordot(x, places, 1, name="scores")


def drawn(scores):
    return tf.random.categorical(scores, 1, dtype=tf.int32)


def learned(ids, weight=1.0):
    with tf.GradientTape() as tape:
        losses = tf.stop_gradient(weight) * tf.nn.sparse_softmax_cross_entropy_with_logits(ids[:, 1:], scored(ids[:, :-1], "learn"))
        loss = tf.reduce_sum(losses)
    places.assign_sub(tape.gradient(loss, places))
    return loss


def written(ids, place, newest):
    rows = tf.range(4)
    return tf.tensor_scatter_nd_update(ids, tf.stack([rows, tf.fill([4], place)], 1), newest)


def unrolled(part, join=lambda ids, newest: tf.concat([ids, newest], 1), score=scored):
    def step(ids):
        for number in range(5):
            scores = score(part(ids), f"pass_{number}")[:, -1]
            ids = join(ids, drawn(scores))
        return learned(ids[:, :6], tf.reduce_mean(scores))

    return described(tf.function(step), tf.zeros([4, 1], tf.int32), of=MODEL)


def looped(part):
    def step(ids):
        for place in tf.range(1, 6):
            newest = drawn(scored(part(ids, place), "pass")[:, -1])
            ids = written(ids, place, newest[:, 0])
        return learned(ids)

    return described(tf.function(step), tf.zeros([4, 6], tf.int32), of=MODEL)


def differentiated(ids):
    total = 0.0
    with tf.GradientTape() as tape:
        for number in range(5):
            scores = scored(ids, f"pass_{number}")[:, -1]
            newest = drawn(scores)
            ids = tf.concat([ids, newest], 1)
            total += tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(newest[:, 0], scores))
    places.assign_sub(tape.gradient(total, places))


def of_sum(ids, name):
    return tf.tensordot(tf.reduce_sum(tf.gather(table, ids), 1, True), places, 1, name=name + "/scores")


def same(ids):
    ids = tf.concat([ids, drawn(scored(ids, "first")[:, -1])], 1)
    total = 0.0
    for place in tf.range(1, 6):
        total += tf.reduce_sum(scored(ids, "pass")) / tf.cast(place, tf.float32)
    places.assign_sub(0.0 * places + total)
    return learned(ids)


def replaced(ids, newest):
    return tf.where(tf.random.uniform([4, 1]) < 0.5, newest, tf.repeat(ids[:, :1], 7, 1))


result["again"] = unrolled(lambda ids: ids)
result["windows"] = unrolled(lambda ids: ids[:, -3:])
result["newest"] = unrolled(lambda ids: ids[:, -1:])
result["replaced"] = unrolled(lambda ids: ids, replaced)
result["sum"] = unrolled(lambda ids: ids, score=of_sum)
result["same"] = described(tf.function(same), tf.zeros([4, 1], tf.int32), of=MODEL)
result["trained"] = described(tf.function(differentiated), tf.zeros([4, 1], tf.int32), of=MODEL)
result["turns"] = looped(lambda ids, place: ids)
result["first"] = looped(lambda ids, place: ids[:, :place])
result["last"] = looped(lambda ids, place: ids[:, place - 1 : place])

of, factor = weight.values, tf.constant(2.0)
result["whole"] = described(whole, ONES, factor, of=of)
result["sliced"] = described(sliced, ONES, factor, of=of)
result["divided"] = described(divided, ONES, ONES, factor, of=of)


side, seen = tf.Variable(tf.ones([6, 8])), tf.Variable(tf.ones([8, 8]))
ALL = (frozen, head, side, seen, rate)


def weighed(weight, is_made_before=False):
    before = tf.constant(float(weight))

    def step(x):
        with tf.GradientTape() as tape:
            bent = tf.matmul(x, frozen, name="product")
            scores = tf.matmul(bent, head, name="scores")
            helper = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(bent, side, transpose_b=True, name="helper"))))
            inside = tf.cast(tf.constant(weight) + tf.constant(weight), tf.float32)
            loss = tf.reduce_sum(tf.square(scores)) + (before if is_made_before else inside) * helper
        for one, gradient in zip((frozen, head, side), tape.gradient(loss, (frozen, head, side))):
            one.assign_sub(rate * gradient)
        return loss

    return described(tf.function(step), ONES, of=ALL)


def joined(first, second, apart=(24, 48)):
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            scores = tf.matmul(tf.matmul(x, frozen, name="product"), head, name="scores")
            loss = tf.reduce_sum(tf.square(scores)) + tf.reduce_mean(tf.matmul(x, side, name="other"))
        sent = [tf.concat([tf.reshape(tape.gradient(loss, head), [-1]), tf.reshape(each(tape.gradient(loss, side)), [-1])], 0)
                for each in (first, second)]
        received = tf.split(tf.add_n(sent) / 2.0, apart)
        if len(apart) > 2:
            received = received[0], tf.concat(received[1:], 0)
        head.assign_sub(tf.reshape(received[0], [8, 3]))
        side.assign_sub(rate * tf.square(tf.reshape(received[1], [6, 8])))

    return described(tf.function(step), ONES, of=ALL)


def kept(x):
    with tf.GradientTape() as tape:
        bent = tf.matmul(x, frozen, name="product")
        loss = tf.reduce_sum(tf.square(tf.matmul(bent, head, name="scores")))
    places = tf.one_hot(tf.argmax(bent, axis=1), 8, name="guesses")
    seen.assign_add(tf.matmul(places, places, transpose_a=True, name="counts"))
    side.assign_add(tape.gradient(loss, frozen))
    frozen.assign_sub(rate * side)
    return tf.cast(tf.add(tf.multiply(x, 0.5, name="darker"), 1.0, name="lighter"), tf.uint8)


def noted(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(tf.matmul(tf.matmul(x, frozen, name="product"), head, name="scores")))
    head.assign_sub(rate * tape.gradient(loss, head))
    seen.assign(tf.zeros([8, 8]) + tf.matmul(head, head, transpose_b=True, name="noted"))
    return loss


result["noted"] = described(tf.function(noted), ONES, of=ALL)
result["weighed"], result["light"], result["captured"] = weighed(0), weighed(1), weighed(0, True)
result["no gradient"] = joined(tf.zeros_like, tf.zeros_like)
result["of one"] = joined(tf.zeros_like, tf.identity)
result["apart"] = joined(tf.zeros_like, tf.zeros_like, (24, 24, 24))
result["kept"] = described(tf.function(kept), ONES, of=ALL)


def shifted(x):
    scores = tf.matmul(x, side, name="scores")
    loss = tf.reduce_sum(tf.square(scores[:, 1:] - scores[:, :1]))
    return loss + tf.reduce_sum(tf.matmul(tf.concat([x, x[:, :2]], 1), head, name="product"))


result["shifted"] = described(trains(shifted, side, head), ONES, of=ALL)

def step(x, actions, labels):
    return tf.reduce_sum(x) + tf.cast(tf.reduce_sum(actions) + tf.reduce_sum(labels), tf.float32)


def of(give):
    return tf.function(give).get_concrete_function(ONES)


others = {
    "played": of(lambda x: (tf.zeros([9, 5], tf.int64), head)),
    "rebuilt": of(lambda x: tf.repeat(x, 2, axis=0)),
    "predicted": of(lambda x: tf.matmul(tf.matmul(x, frozen), head)),
    "logged": of(tf.reduce_sum),
    "other type": of(lambda x: tf.zeros([4, 5])),
}
called = tf.function(step).get_concrete_function(ONES, tf.zeros([4, 5], tf.int64), tf.zeros([4], tf.int64))
given = makes_batches(others.values(), [called])
result["batches"] = [name for name, function in others.items() if any(function is each for each in given)]


def multiplied(multiply):
    step = trains(lambda rows, others: tf.reduce_sum(tf.square(multiply(rows * rate, others))), frozen)
    return described(step, tf.TensorSpec([None, 5, 6]), tf.TensorSpec([None, 8, 5]))["apart_ops"]


result["apart_ops"] = {
    "matrix": multiplied(lambda rows, others: tf.matmul(rows, frozen, name="x")),
    "dots": multiplied(lambda rows, others: tf.einsum("...i,io->...o", rows, frozen, name="x")),
    "letters": multiplied(lambda rows, others: tf.einsum("bti,io->bto", rows, frozen, name="x")),
    "once": multiplied(lambda rows, others: tf.tensordot(rows, frozen, 1, name="x")),
    # Of as many matrices; whether a batch of one is repeated is not known before.
    "batches": multiplied(lambda rows, others: tf.matmul(others, tf.tensordot(rows, frozen, 1), name="x")),
}


def joined(make):
    context, wide = tf.Variable(tf.ones([6, 6])), tf.Variable(tf.ones([12, 3]))

    def loss_of(rows, of_all):
        of_all = tf.matmul(of_all, context, name="context")
        return tf.reduce_sum(tf.square(make(rows * rate, of_all, wide)))

    specs = tf.TensorSpec([None, 5, 6]), tf.TensorSpec([None, 6])
    values = described(trains(loss_of, context, wide), *specs, of=(context, wide, rate))
    return values["copied_ops"], values["saved_percent"]["copied"]


def repeated(of_all):
    return tf.tile(of_all[:, None], [1, 5, 1], name="repeated")


result["repeated rows"] = {
    "joined": joined(lambda rows, of_all, wide: tf.tensordot(tf.concat([rows, repeated(of_all)], -1), wide, 1, name="x")),
    "matrix": joined(lambda rows, of_all, wide: tf.matmul(tf.concat([rows, repeated(of_all)], -1), wide, name="x")),
    "below": joined(lambda rows, of_all, wide: tf.tensordot(tf.concat([rows, repeated(of_all)], 1), wide[:6], 1, name="x")),
    "widened": joined(lambda rows, of_all, wide: tf.tensordot(tf.tile(rows, [1, 1, 2]), wide, 1, name="x")),
    "bent": joined(lambda rows, of_all, wide: tf.tensordot(tf.tanh(tf.concat([rows, repeated(of_all)], -1)), wide, 1, name="x")),
    "first": joined(lambda rows, of_all, wide: tf.tensordot(rows, wide[:6], 1) + tf.matmul(of_all, wide[6:])[:, None]),
}


def sparse(make):
    gates, wide = tf.Variable(tf.ones([5, 6])), tf.Variable(tf.ones([32, 3]))

    def loss_of(rows):
        return tf.reduce_sum(tf.square(make(rows, tf.concat([gates] * 4 + [gates[:, :8]] + [gates[:, :2]], -1), wide)))

    values = described(trains(loss_of, gates, wide), tf.TensorSpec([5, 7, 32]), of=(gates, wide, rate))
    return values["zero_ops"], values["saved_percent"]["zero"]


def numbers_of(rows):
    return tf.argmax(rows, -1)


result["zeros"] = {
    "diagonal": sparse(lambda rows, gates, wide: tf.matmul(rows, tf.linalg.diag(gates, name="made"), name="x")),
    "looked up": sparse(lambda rows, gates, wide: tf.tensordot(tf.one_hot(numbers_of(rows), 32, name="made"), wide, 1, name="x")),
    "one of few": sparse(lambda rows, gates, wide: tf.tensordot(tf.one_hot(numbers_of(rows), 8), wide[:8], 1)),
    "each": sparse(lambda rows, gates, wide: rows * gates[:, None]),
}


def filtered(filters, convolve, variable=False, is_known=False):
    kept = tf.Variable(filters, trainable=False) if variable else tf.constant(filters)

    def loss_of(pictures):
        seen = tf.tensordot(pictures, frozen[:2, :3], 1)
        return tf.reduce_sum(tf.square(convolve(seen, kept, strides=[1, 1, 1, 1], padding="SAME", name="x")))

    own = [kept] if is_known else []
    values = described(trains(loss_of, frozen), tf.ones([2, 40, 40, 2]), of=(frozen, rate, *own))
    return values["separable_ops"], values["saved_percent"]["separable"]


def known_zeros(numbers, multiply):
    kept, wide = tf.Variable(numbers, trainable=False), tf.Variable(tf.ones([2, 32]))
    step = trains(lambda x: tf.reduce_sum(tf.square(multiply(tf.tensordot(x, wide, 1), kept))), wide)
    values = described(step, tf.ones([2, 9, 9, 2]), of=(kept, wide, rate))
    return values["zero_ops"], values["saved_percent"]["zero"]


def transposed(x, kept):
    return tf.nn.conv2d_transpose(x, kept, [2, 18, 18, 32], 2, name="x")


def convolved(x, kept):
    return tf.nn.conv2d(x, kept, 1, "SAME", name="x")


apart, few = np.zeros([4, 4, 32, 32], np.float32), np.zeros([32, 64], np.float32)
apart[:, :, range(32), range(32)] = 1
few[3, :8] = 1
result["zeros"] |= {
    "transposed": known_zeros(apart, transposed),
    "convolved": known_zeros(apart, convolved),
    "few": known_zeros(few, lambda x, kept: tf.matmul(tf.reshape(x, [-1, 32]), kept, name="x")),
    "all": known_zeros(apart + 1, convolved),
    "more": known_zeros(np.eye(32, dtype=np.float32) + np.eye(32, k=1, dtype=np.float32), lambda x, kept: tf.tensordot(x, kept, 1, name="x")),
}

line = np.exp(-(np.arange(-12.0, 13.0) ** 2) / 40)
column_by_row = np.tile((line[:, None] * line)[:, :, None, None], [1, 1, 3, 1]).astype(np.float32)
disc = np.tile((np.hypot(*np.mgrid[-12:13, -12:13]) < 9)[:, :, None, None], [1, 1, 3, 1]).astype(np.float32)
result["filters"] = {
    "blur": filtered(column_by_row, tf.nn.depthwise_conv2d),
    "mean": filtered(np.ones([16, 20, 3, 1], np.float32), tf.nn.conv2d),
    "disc": filtered(disc, tf.nn.depthwise_conv2d),
    "other lines": filtered(np.concatenate([column_by_row[:, :, :2], np.ones([25, 25, 1, 1], np.float32)], 2), tf.nn.conv2d),
    "other lines apart": filtered(np.concatenate([column_by_row[:, :, :2], np.ones([25, 25, 1, 1], np.float32)], 2), tf.nn.depthwise_conv2d),
    "small": filtered(column_by_row[8:17], tf.nn.depthwise_conv2d),
    "frozen": filtered(column_by_row, tf.nn.depthwise_conv2d, variable=True, is_known=True),
    "unknown": filtered(column_by_row, tf.nn.depthwise_conv2d, variable=True),
}


def wrapped(wrap):
    layer = wrap(lambda rows: tf.tanh(tf.matmul(rows, frozen, name="product"), name="bent"))
    step = trains(lambda x: tf.reduce_sum(tf.square(tf.matmul(layer(x), head, name="scores"))), frozen, head)
    return types_of(described(step, ONES)["recomputed_ops"], step)


def with_choice(layer):
    return lambda rows: layer(rows + tf.where(tf.equal(rows[0, 0], rows[0, 1]), 0.0, 1.0))


def twice(again):
    count = tf.Variable(1.0, trainable=False)

    def loss_of(x):
        once = tf.tanh(tf.matmul(x, frozen, name="once"))
        return tf.reduce_sum(tf.matmul(once + again(x, count), head))

    return described(trains(loss_of, frozen, head), ONES, of=(frozen, head, count))["same_ops"]


@tf.function
def called(x):
    return tf.tanh(tf.matmul(x, frozen, name="inside"), name="bent")


def written(x, count):
    frozen.assign_add(frozen)
    return tf.tanh(tf.matmul(x, frozen, name="again"))


queue, rows_of_other = (tf.Variable(tf.ones([10, 8]), trainable=False) for _ in range(2))


def moved(value):
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            made = tf.matmul(x, frozen)
            loss = tf.reduce_sum(tf.matmul(made, queue, transpose_b=True))
        frozen.assign_sub(tape.gradient(loss, frozen))
        queue.assign(value(made))

    return sorted(types_of(described(step, ONES, of=(frozen, queue, rows_of_other))["shifted_ops"], step))


result["moved"] = {
    "up": moved(lambda made: tf.concat([made, queue[:-4]], 0)),
    "round": moved(lambda made: tf.roll(queue, 4, 0)),
    "of another": moved(lambda made: tf.concat([made, rows_of_other[:-4]], 0)),
    "little": moved(lambda made: tf.concat([made, made, queue[:2]], 0)),
    "scaled": moved(lambda made: tf.concat([made, 0.5 * queue[:-4]], 0)),
}

KEPT = tf.ones([6, 8])
result["read twice"] = {
    "read again": twice(lambda x, count: tf.tanh(tf.matmul(x, frozen, name="again"), name="bent")),
    "in a function": twice(lambda x, count: called(x)),
    "one matrix": twice(lambda x, count: tf.matmul(x, KEPT, name="again") + tf.matmul(x, KEPT)),
    "written": twice(written),
    "drawn": twice(lambda x, count: tf.matmul(x + tf.random.normal([]), frozen, name="again")),
    "turned": twice(lambda x, count: tf.matmul(x[:, :4], frozen[:4]) + tf.matmul(frozen[:4, :4], x[:, :4], transpose_a=True, transpose_b=True)[:4, :1]),
    "of more": twice(lambda x, count: tf.matmul(x + 1.0, frozen, name="again")),
    "in a branch": twice(lambda x, count: tf.cond(count > 0, lambda: tf.matmul(x + 1.0, frozen), lambda: tf.tanh(tf.matmul(x + 1.0, frozen, name="other")))),
}
result["recomputed"] = {"again": wrapped(tf.recompute_grad), "kept": wrapped(with_choice)}
asked = []


@tf.function
def numbered(x):
    # As the key of a collective, which is another with each call.
    graph = tf.compat.v1.get_default_graph()
    number = graph.capture_call_time_value(lambda: asked.append(1) or tf.constant(1.0), tf.TensorSpec([]))
    return tf.matmul(x * number, frozen)


late = numbered.get_concrete_function(ONES)
asked.clear()
assert is_concrete(late) and not is_concrete(numbered) and traces(late) == [late]
makes_batches([late], [late])
updates_alone(late)
result["asked"] = len(asked)
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with mirrored.scope():
    shared = tf.Variable(tf.ones([6, 3]))


def pairwise(of_rows, others):
    return {
        "differences": lambda: tf.reduce_sum(tf.square(tf.subtract(of_rows[:, None], others[None], name="pairs")), -1),
        "with others": lambda: tf.reduce_sum(tf.square(tf.subtract(of_rows[:, None], others[None], name="pairs") + tf.ones([5, 5, 3])), -1),
        "not summed": lambda: tf.sort(tf.subtract(of_rows[:, None], others[None], name="pairs")),
        "sizes": lambda: tf.reduce_mean(tf.abs(tf.subtract(of_rows[:, None], others[None], name="pairs")), [1, 2]),
        "one row": lambda: tf.reduce_sum(tf.square(tf.subtract(of_rows, others[:1], name="pairs")), -1),
        "nothing in common": lambda: tf.reduce_sum(tf.multiply(of_rows[:, :1], others[None, :, 0], name="pairs"), -1),
    }


def summed(kind, sums):
    @tf.function
    def step(rows):
        def of_replica(rows):
            with tf.GradientTape() as tape:
                places = tf.matmul(rows, shared, name="product")
                loss = tf.reduce_mean(pairwise(places, places)[kind]())
            slope = tape.gradient(loss, shared)
            context = tf.distribute.get_replica_context()
            own = {"one row": lambda: tf.reduce_mean(rows), "not summed": lambda: tf.random.normal([])}
            for n in range(sums):
                slope = tf.clip_by_norm(context.all_reduce("sum", slope), 1.0)
                if n == 0 and kind in own:
                    slope = own[kind]() + slope
            shared.assign_sub(0.1 * slope)
            return loss
        return mirrored.run(of_replica, args=(rows,))
    return described(step, tf.ones([5, 6]), of=())


for kind in pairwise(ONES, ONES):
    result[kind] = summed(kind, 2)
result["once"] = summed("differences", 1)


def turned(kind):
    cell, tall = tf.Variable(tf.ones([6, 6])), tf.Variable(tf.ones([12, 6]))
    loops = {
        "recurrent": lambda rows: tf.scan(lambda last, row: tf.tanh(last + tf.matmul(row, cell, name="row_product")), rows),
        "of rows": lambda rows: tf.map_fn(lambda row: tf.tanh(tf.matmul(row, cell, name="row_product")), rows),
        "added": lambda rows: tf.while_loop(
            lambda n, whole: n < 4, lambda n, whole: (n + 1, whole + tf.matmul(rows[n], cell, name="row_product")), (0, rows[0]))[1],
        "gated": lambda rows: tf.scan(lambda last, row: tf.matmul(tf.concat([last, row], 1), tall, name="row_product"), rows),
        "again": lambda rows: tf.while_loop(lambda n, state: n < 4, lambda n, state: (n + 1, tf.matmul(state, cell, name="row_product")), (0, rows[0]))[1],
    }

    @tf.function
    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loops[kind](rows))
        table = tall if kind == "gated" else cell
        table.assign_sub(0.1 * tape.gradient(loss, table))
        return loss

    return [name.rpartition("/")[2] for name in described(step, tf.ones([4, 5, 6]), of=(cell, tall))["carried_ops"]]


result["in turn"] = {kind: turned(kind) for kind in ("recurrent", "gated", "of rows", "added", "again")}
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = run_python(tmp_path_factory.mktemp("flow"), "train.py", script=SCRIPT, code=0)
    result: dict[str, Any] = json.loads(done.out)
    return result


def test_a_variable_that_nothing_changes_is_a_constant(described: dict[str, Any]) -> None:
    fixed = described["fixed"]
    assert fixed["batch_ops"] == ["product"]
    assert "style" in fixed["constant_ops"]
    assert {"product", "style"} <= {*fixed["fixed_ops"]}
    assert "scores" not in fixed["fixed_ops"]


@pytest.mark.parametrize("kind", ["changed", "copied", "target"])
def test_one_that_changes_or_may_be_a_copy_of_a_trained_one_is_none(
    kind: str, described: dict[str, Any]
) -> None:
    values = described[kind]
    assert not {"product", "style"} & {*values["batch_ops"], *values["constant_ops"]}
    assert "product" not in values["fixed_ops"]


def test_gradients_that_are_only_summed(described: dict[str, Any]) -> None:
    """All but one through each product, and what lies between the products; not where anything else reads one, nor of one loss."""
    of_products = [name for name in described["summed"]["summed_ops"] if "product" in name]
    assert of_products == ["gradient_tape/product/MatMul_1"]
    for kind in ("projected", "multiplied", "clipped", "alike"):
        assert described[kind]["summed_ops"] == [], kind


def test_a_gradient_is_dense_for_what_no_batch_needs(described: dict[str, Any]) -> None:
    dense = described["all"]["dense_ops"]
    for part in ("AddN/inputs_", "AddN", "mul", "AssignSubVariableOp", "gradient_tape/Mul"):
        assert any(name.startswith(part) for name in dense), part
    assert described["rows"]["dense_ops"] == described["mean"]["dense_ops"] == []
    assert described["checked of many"]["dense_ops"] == [], "24 look-ups of 90 rows"
    checked = described["checked"]["dense_ops"]
    for part in ("UnsortedSegmentSum", "IsFinite", "SelectV2", "mul", "AssignSubVariableOp"):
        assert any(name.startswith(part) for name in checked), part
    assert not any("GatherV2" in name or "Square" in name for name in checked)


def test_replicas_that_read_the_same_batch(described: dict[str, Any]) -> None:
    same = {kind: described[kind]["same_batch"] for kind in ("whole", "sliced", "divided", "fixed")}
    assert same == {"whole": 2, "sliced": 0, "divided": 0, "fixed": 0}


def test_passes_over_ids_that_a_later_one_repeats(described: dict[str, Any]) -> None:
    """Neither the first and the last of them, nor those that read one id, or others than before, or their sum, or that are trained."""
    none = ("newest", "replaced", "sum", "same", "trained", "last")
    passes = {
        kind: sorted({name.rpartition("scores")[0] for name in described[kind]["again_ops"]} - {""})
        for kind in ("again", "windows", "turns", "first", *none)
    }
    unrolled, turns = ["pass_2/", "pass_3/"], ["while/pass/", "while/while/pass/"]
    assert passes == {
        **dict.fromkeys(("again", "windows"), unrolled),
        **{kind: [] for kind in none},
        **dict.fromkeys(("turns", "first"), turns),
    }


@pytest.mark.parametrize("kind", ["weighed", "captured", "no gradient"])
def test_products_with_0_and_updates_by_zeros_train_nothing(
    kind: str, described: dict[str, Any]
) -> None:
    """With what only they need; a gradient that another replica adds, or that is taken apart otherwise, may be none."""
    idle = described[kind]["idle_ops"]
    is_joined = kind == "no gradient"
    assert ("AssignSubVariableOp_1" if is_joined else "AssignSubVariableOp_2") in idle
    assert is_joined or {"helper", "gradient_tape/helper/MatMul"} <= {*idle}
    assert not any("product" in name or "scores" in name for name in idle)
    # The gradient of a slice is given the places of that, which are zeros. What is noted of weights is more than zeros.
    for other in ("light", "of one", "apart", "kept", "shifted", "noted"):
        assert described[other]["idle_ops"] == [], other


def test_pairs_that_are_combined_number_by_number(described: dict[str, Any]) -> None:
    """Up to where they are summed, with gradients, on each replica; rows have more than one number, and each is met by several."""
    found = {*described["differences"]["pair_ops"]}
    for replica in ("", "replica_1/"):
        assert {f"{replica}pairs", f"{replica}Square", f"{replica}Sum"} <= found
        # TensorFlow names gradients after the scope around their op, which here is none.
        gradients = {name for name in found if name.startswith(f"gradient_tape/{replica}")}
        assert gradients
    assert not any("product" in name or "Mean" in name for name in found)
    sizes = {name.rpartition("/")[2] for name in described["sizes"]["pair_ops"]}
    assert {"pairs", "Abs", "Mean", "Sign", "mul"} <= sizes
    for other in ("with others", "not summed", "one row", "nothing in common"):
        assert described[other]["pair_ops"] == [], other


@pytest.mark.parametrize(("kind", "percent"), [("picked", 75), ("taken", 91), ("diagonal", 87)])
def test_products_of_which_a_slice_drops_most(
    kind: str, percent: int, described: dict[str, Any]
) -> None:
    """With what is computed of each number before that, and the gradients; the shape is no number."""
    assert {*described[kind]["dropped_ops"]} == {"product", "bent", "gradient_tape/product/MatMul"}
    assert described[kind]["saved_percent"]["dropped"] == percent


@pytest.mark.parametrize("kind", ["picked twice", "half picked", "read whole", "projected"])
def test_products_of_which_enough_is_used(kind: str, described: dict[str, Any]) -> None:
    assert described[kind]["dropped_ops"] == []
    assert described[kind]["saved_percent"]["dropped"] == 0


def test_what_a_function_is_given_with_each_call_is_not_made_to_describe_it(
    described: dict[str, Any],
) -> None:
    assert described["asked"] == 0


def test_gradients_of_a_matrix_for_each_part_of_the_batch(described: dict[str, Any]) -> None:
    found = described["apart_ops"]
    assert {*found["matrix"]} == {"gradient_tape/x/MatMul_1", "gradient_tape/x/Sum_1"}
    assert len(found["dots"]) == 2
    assert all(name.startswith("gradient_tape/x/") for name in found["dots"])
    assert not any(found[other] for other in ("letters", "once", "batches"))


def test_products_with_rows_that_were_repeated(described: dict[str, Any]) -> None:
    """Of twelve features six are the same in five rows: two fifths of the product are done again."""
    for kind, product in (("joined", "x/MatMul"), ("matrix", "x")):
        found, percent = described["repeated rows"][kind]
        assert {product, "concat", "repeated"} <= {*found}
        assert sum(name.startswith(f"gradient_tape/{product}/") for name in found) >= 2
        assert percent == 40
    for other in ("below", "widened", "bent", "first"):
        assert described["repeated rows"][other] == [[], 0], other


def test_products_with_diagonal_and_one_hot_matrices(described: dict[str, Any]) -> None:
    """Of 32 numbers in a row one is not 0."""
    for kind, product in (("diagonal", "x"), ("looked up", "x/MatMul")):
        found, percent = described["zeros"][kind]
        assert {product, "made"} <= {*found}
        assert any(name.startswith(f"gradient_tape/{product}/") for name in found)
        assert percent == 96
    for other in ("one of few", "each"):
        assert described["zeros"][other] == [[], 0], other


def test_products_with_variables_that_stay_zeros(described: dict[str, Any]) -> None:
    """Channels that stay apart are 31 of 32 zeros; of others what adds up each number that is none takes 16 times as long."""
    for kind, saved in (("transposed", 96), ("convolved", 96), ("few", 93)):
        found, percent = described["zeros"][kind]
        assert "x" in found
        assert any(name.startswith("gradient_tape/") for name in found), kind
        assert percent == saved
    for other in ("all", "more"):
        assert described["zeros"][other] == [[], 0], other


def test_filters_that_are_a_column_times_a_row(described: dict[str, Any]) -> None:
    """A small one is as quick as two, and one of which nothing is known may become another."""
    for kind, percent in (("blur", 80), ("frozen", 80), ("mean", 68), ("other lines apart", 80)):
        found, saved = described["filters"][kind]
        assert any(name.startswith("x") for name in found)
        assert any("BackpropInput" in name for name in found)
        assert saved == percent
    for other in ("disc", "small", "unknown", "other lines"):
        assert described["filters"][other] == [[], 0], other


def test_what_is_computed_again_of_variables_that_are_read_again(described: dict[str, Any]) -> None:
    """TensorFlow itself computes once what reads the same tensors."""
    again = {
        name.replace("StatefulPartitionedCall/", "")
        for name in described["read twice"]["in a function"]
    }
    assert {"inside", "bent"} <= again
    found = {*described["read twice"]["read again"]}
    assert {"again", "bent"} <= found
    assert any(name.startswith("gradient_tape/again/") for name in found)
    assert not any("once" in name for name in found)
    for other in ("one matrix", "written", "drawn", "turned", "of more", "in a branch"):
        assert described["read twice"][other] == [], other


def test_a_variable_that_is_copied_whole_to_change_a_part(described: dict[str, Any]) -> None:
    found = described["moved"]
    assert found["up"] == ["AssignVariableOp", "ConcatV2", "ReadVariableOp", "StridedSlice"]
    assert found["round"] == ["AssignVariableOp", "ReadVariableOp", "Roll"]
    for other in ("of another", "little", "scaled"):
        assert found[other] == [], other


def test_ops_of_loops_that_need_what_the_iteration_before_has_computed(
    described: dict[str, Any],
) -> None:
    """Not what only counts, or is added to, or put into a list; of a cell not the product with its row.

    Its gradient could be summed behind the loop, and is where the product is.
    """
    turns = described["in turn"]
    assert "Tanh" in turns["recurrent"]
    assert not {"row_product", "MatMul_1"} & {*turns["recurrent"]}
    assert {"row_product", "MatMul_1"} <= {*turns["gated"]}
    assert "row_product" in turns["again"]
    for kind in ("of rows", "added"):
        assert not {"row_product", "Tanh", "MatMul"} & {*turns[kind]}, kind


def test_what_is_recomputed_for_gradients(described: dict[str, Any]) -> None:
    """Not the gradients themselves, nor what is updated by them."""
    assert {"MatMul", "Tanh"} <= {*described["recomputed"]["again"]}
    assert len(described["recomputed"]["again"]) < 6
    assert described["recomputed"]["kept"] == []


def test_gradients_that_were_summed_are_summed_again(described: dict[str, Any]) -> None:
    """Not where what each replica has itself, or draws, was added meanwhile."""
    sent = {
        kind: len(described[kind]["sent_ops"])
        for kind in ("differences", "once", "one row", "not summed")
    }
    assert sent == {"differences": 2, "once": 0, "one row": 0, "not summed": 0}


def test_trained_is_what_a_gradient_reaches(described: dict[str, Any]) -> None:
    """Also by way of a variable that collects gradients; a trainable one that counts is none."""
    untrained = described["kept"]["untrained_ops"]
    # What is only drawn in integers is outside of any scope, as the loss is.
    assert {"guesses", "counts", "darker", "lighter"} <= {*untrained}
    assert not any(name.startswith(("product", "Square", "Sum")) for name in untrained)


def test_functions_that_give_what_a_step_takes_make_batches(described: dict[str, Any]) -> None:
    """Of the type and all dimensions but the first of an argument; a step gives losses itself, and takes none."""
    assert described["batches"] == ["played"]
