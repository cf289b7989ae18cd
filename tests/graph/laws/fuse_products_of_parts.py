"""Rows for `fuse_products_of_parts`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def loop(product, *shape, axis=0, stack=0):
    """Stack a function of each part."""
    return tf.stack([product(part) for part in tf.unstack(feed(*(shape or (3, 5, 4))), axis=axis)], axis=stack)


def biased(part):
    """A product with its own matrix and bias."""
    return tf.nn.bias_add(tf.matmul(part, weights(4, 2)), weights(2))


def split_loop(product, *shape, axis=1, joined=1, sizes=3):
    """Join a function of each part of a matrix."""
    return tf.concat([product(part) for part in tf.split(feed(*(shape or (6, 12))), sizes, axis=axis)], axis=joined)


def many():
    """Many parts."""
    return split_loop(lambda part: tf.matmul(part, weights(2, 2)), None, 64, sizes=32)


def gated(part):
    """A product from the left, with its own matrix."""
    return tf.matmul(weights(5, 6), part)


def uneven():
    """Parts of different widths."""
    one, other = tf.split(feed(6, 12), [5, 7], axis=1)
    return tf.concat([tf.matmul(one, weights(5, 2)), tf.matmul(other, weights(7, 2))], 1)


def any_width():
    """A part of unknown width."""
    one, other = tf.split(feed(None, None), 2, axis=1)
    return tf.concat([tf.matmul(one, weights(1, 2)), tf.matmul(other, weights(1, 2))], 1)


def split_and_stacked():
    """Parts of a matrix, stacked."""
    return tf.stack([biased(part) for part in tf.split(feed(None, 12), 3, axis=1)], axis=1)


def unstacked_and_joined():
    """Parts of a tensor, joined."""
    return tf.concat([biased(part) for part in tf.unstack(feed(None, 3, 4), axis=1)], axis=1)


def both():
    """Products of the parts of two tensors."""
    one, other = tf.unstack(feed(3, 5, 4)), tf.unstack(feed(3, 4, 2, name="z"))
    return tf.stack([tf.matmul(a, b) for a, b in zip(one, other, strict=True)])


def some():
    """Two parts of three."""
    return tf.stack([tf.matmul(part, weights(4, 2)) for part in tf.unstack(feed(3, 5, 4))[:2]])


def of(parts, product):
    """Stack a function of each of these parts."""
    return tf.stack([product(part) for part in parts])


def indexed(pick, *shape):
    """Parts of a tensor by their indices."""
    x = feed(*(shape or (3, 5, 4)))
    return of([pick(x, index) for index in range(3)], biased)


def squeezed():
    """Parts of a tensor by Split, without the axis."""
    return of([tf.squeeze(part, [0]) for part in tf.split(feed(3, 5, 4), 3)], biased)


def columns(*bounds):
    """Products of slices of the columns."""
    x = feed(None, 12)
    return tf.concat([tf.matmul(x[:, begin:end], weights(end - begin, 2)) for begin, end in bounds], 1)


def row_slices():
    """Products of slices of the rows."""
    x = feed(6, 4)
    return tf.concat([tf.matmul(tf.slice(x, [2 * row, 0], [2, -1]), weights(4, 2)) for row in range(3)], 0)


def with_inputs():
    """Products of parts and other inputs."""
    return of(zip(tf.unstack(feed(2, 5, 4)), [feed(4, 3, name="a"), feed(4, 3, name="b")], strict=True), matmul)


def with_one_input():
    """Products of parts and the same input."""
    z = feed(4, 3, name="z")
    return of([(part, z) for part in tf.unstack(feed(2, 5, 4))], matmul)


def matmul(pair):
    """The product of two matrices."""
    return tf.matmul(*pair)


def activated(*functions):
    """Products with a bias and an activation each."""
    steps = iter(functions)
    return loop(lambda part: next(steps)(biased(part)))


def wide():
    """Matrices of different widths cannot be stacked, but their sums can."""
    sizes = iter((1, 2, 2))
    return loop(lambda part: tf.matmul(part, weights(4, next(sizes))) + weights(2))


def read_twice():
    """A product that something else reads."""
    products = [tf.matmul(part, weights(4, 2)) for part in tf.unstack(feed(2, 5, 4))]
    return tf.stack(products) + products[0]


def slices(a=None, b=None, *, order=None, axis=0, stack=0, **kwargs):
    """Return stacked products in the usual form."""
    a = feed(3, 5, 4) if a is None else a
    b = weights(4, 2) if b is None else b
    order = range(a.shape[axis]) if order is None else order
    return tf.stack([tf.matmul(a[i] if axis == 0 else a[:, i], b, **kwargs) for i in order], axis=stack)


def unstacked(axis):
    """The same with tf.unstack."""
    b = weights(4, 2)
    return tf.stack([tf.matmul(part, b) for part in tf.unstack(feed(3, 5, 4), axis=axis)], axis=axis)


def slices_read_twice():
    """A product that something else reads."""
    a, b = feed(2, 5, 4), weights(4, 2)
    first, second = (tf.matmul(a[i], b) for i in range(2))
    return tf.stack([first, second]) + first


def two_matrices():
    """A matrix for each slice."""
    a = feed(2, 5, 4)
    return tf.stack([tf.matmul(a[i], weights(4, 2)) for i in range(2)])


def rows_of_each():
    """Slices that leave something out."""
    a, b = feed(2, 5, 4), weights(4, 2)
    return tf.stack([tf.matmul(a[i, 1:], b) for i in range(2)])


def waiting():
    """A product that waits."""
    a, b = feed(2, 5, 4), weights(4, 2)
    with tf.control_dependencies([tf.raw_ops.Assert(condition=True, data=[1])]):
        first = tf.matmul(a[0], b)
    return tf.stack([first, tf.matmul(a[1], b)])


def layers(part, kernel, other):
    """Two layers."""
    return tf.nn.softmax(tf.nn.relu(part @ kernel + 0.5) @ other)


def two_layers(*shape, axis=0):
    """Two layers with the same matrices for each slice."""
    kernel, other = weights(4, 2), weights(2, 3)
    return loop(lambda part: layers(part, kernel, other), *shape, axis=axis, stack=axis)


def equations(equation, *shape, axis=0):
    """Products by Einsum."""
    kernel = weights(4, 2)
    return loop(lambda part: tf.einsum(equation, part, kernel), *shape, axis=axis, stack=axis)


def views(view):
    """Products of slices, each viewed in another way."""
    kernel = weights(4, 2)
    return loop(lambda part: view(part) @ kernel, 3, 5, 4)


def squeezed_and_joined():
    """Split, squeeze, multiply, and concatenate."""
    kernel = weights(4, 2)
    parts = [tf.squeeze(part, [1]) @ kernel for part in tf.split(feed(None, 3, 4), 3, axis=1)]
    return tf.concat([tf.expand_dims(part, 1) for part in parts], 1)


def joined_batches():
    """Parts that keep an axis of size 1, which a BatchMatMulV2 of four axes does not multiply correctly."""
    kernel = weights(4, 2)
    return tf.concat([part @ kernel for part in tf.split(feed(3, 5, 4), 3)], 0)


def written_list(order=(0, 1, 2)):
    """Write products to a list."""
    x, kernel, results = feed(3, 5, 4), weights(4, 2), tf.TensorArray(tf.float32, 3)
    for place in order:
        results = results.write(place, x[place] @ kernel)
    return results.stack()


def total(*kernels, add=tf.add_n, axis=0, first=None, **kwargs):
    """Add products of slices."""
    x = feed(3, 5, 4) if axis == 0 else feed(None, 3, 4)
    parts = [tf.matmul(part, k, **kwargs) for part, k in zip(tf.unstack(x, axis=axis), kernels, strict=True)]
    return add(parts if first is None else [first, *parts])


def added(terms):
    """Return a sum from left to right."""
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def three(*shape):
    """Return three matrices."""
    return [weights(*shape) for _ in range(3)]


def read_product():
    """A sum of products; something else reads the first one."""
    x, kernel = feed(3, 5, 4), weights(4, 2)
    parts = [part @ kernel for part in tf.unstack(x)]
    return tf.add_n(parts) * parts[0]


def chained():
    """Each product is of the one before, so no iteration is independent."""
    x, kernel = feed(3, 5, 4), weights(4, 4)
    results = [x[0] @ kernel]
    for place in (1, 2):
        results.append((x[place] + results[-1]) @ kernel)
    return tf.stack(results)


TABLE = [
    holds("a matrix each", lambda: loop(lambda part: tf.matmul(part, weights(4, 2))), gone=("Pack", "MatMul")),
    holds("a bias each", lambda: loop(biased), gone=("MatMul", "BiasAdd")),
    holds("a sum each", lambda: loop(lambda part: tf.matmul(part, weights(4, 2)) + weights(2)), gone="MatMul"),
    holds("from the right", lambda: loop(lambda part: tf.matmul(weights(2, 5), part)), gone="MatMul"),
    holds("parts on both sides", both, gone="MatMul"),
    holds("transposed", lambda: loop(lambda part: tf.matmul(part, weights(2, 5), True, True)), gone="MatMul"),
    holds("along time, of any batch", lambda: loop(biased, None, 3, 4, axis=1, stack=1), gone="MatMul"),
    holds("along time, stacked first", lambda: loop(biased, None, 3, 4, axis=1), gone="MatMul"),
    holds("split columns, joined", lambda: split_loop(biased), gone=("MatMul", "Transpose")),
    holds("many split columns, joined", many, gone=("MatMul", "ConcatV2")),
    holds("split columns with a number each", lambda: split_loop(lambda x: tf.matmul(x, weights(4, 2)) + weights(1))),
    holds("split columns of any batch", lambda: split_loop(biased, None, 12), gone="MatMul"),
    holds("split columns, joined rows", lambda: split_loop(biased, joined=0), gone="MatMul"),
    holds("split rows, joined", lambda: split_loop(biased, 6, 4, axis=0, joined=0), gone="MatMul"),
    holds("split rows, joined columns", lambda: split_loop(biased, 6, 4, axis=0), gone="MatMul"),
    holds("split rows of any number", lambda: split_loop(biased, None, 4, axis=0, joined=-2, sizes=2), gone="MatMul"),
    holds("equal sizes", lambda: split_loop(biased, sizes=[4, 4, 4]), gone="MatMul"),
    holds("split, from the right", lambda: split_loop(gated), gone="MatMul"),
    holds("split and stacked", split_and_stacked, gone="MatMul"),
    holds("unstacked and joined", unstacked_and_joined, gone="MatMul"),
    holds("indices", lambda: indexed(lambda x, index: x[index]), gone="MatMul"),
    holds("indices along time", lambda: indexed(lambda x, index: x[:, index], None, 3, 4), gone="MatMul"),
    holds("gathered indices", lambda: indexed(tf.gather), gone="MatMul"),
    holds("squeezed parts", squeezed, gone="MatMul"),
    holds("slices of columns", lambda: columns((0, 4), (4, 8), (8, 12)), gone="MatMul"),
    holds("slices of rows", row_slices, gone="MatMul"),
    holds("other inputs", with_inputs, gone="MatMul"),
    holds("an activation each", lambda: activated(*[tf.nn.relu] * 3), gone="MatMul"),
    holds("the bias first", lambda: loop(lambda part: weights(1, 2) + tf.matmul(part, weights(4, 2))), gone="MatMul"),
    refuses("different activations", lambda: activated(tf.nn.relu, tf.tanh, tf.nn.relu), because=""),
    holds("one input for all", with_one_input, gone="MatMul"),
    refuses("slices that leave columns out", lambda: columns((0, 4), (4, 8)), because="all parts"),
    refuses("slices in another order", lambda: columns((4, 8), (0, 4), (8, 12)), because="all parts"),
    refuses("slices of different widths", lambda: columns((0, 2), (2, 6), (6, 12)), because="different"),
    refuses("parts of different widths", uneven, because="different"),
    refuses("a matrix of any width", any_width, because="open"),
    holds("two parts of three", some, gone="MatMul"),
    refuses("matrices of different shapes", wide, because="different shapes"),
    holds("a bias per row", lambda: loop(lambda p: tf.matmul(p, weights(4, 2)) + weights(5, 2)), gone="MatMul"),
    holds("stacked columns", lambda: loop(biased, stack=2), gone="MatMul"),
    refuses("another reader", read_twice, because="something else reads"),
    holds("a loop over the first axis", slices, gone=("Pack", "MatMul")),
    holds("over time steps, of any batch", lambda: slices(feed(None, 3, 4), axis=1, stack=1), gone="MatMul"),
    holds("stacked along an axis from behind", lambda: slices(feed(None, 3, 4), axis=1, stack=-2), gone="MatMul"),
    holds("indices from behind", lambda: slices(order=[-3, -2, -1]), gone="MatMul"),
    holds("a transposed matrix", lambda: slices(b=weights(2, 4), transpose_b=True), gone="MatMul"),
    holds("a matrix that is computed", lambda: slices(b=feed(4, 2, name="b")), gone="MatMul"),
    holds("tf.unstack", lambda: unstacked(0), gone="MatMul"),
    holds("tf.unstack along the second axis", lambda: unstacked(1), gone="MatMul"),
    holds("one slice left out", lambda: slices(order=[0, 1]), gone="MatMul"),
    holds("slices of an unknown number", lambda: slices(feed(None, 5, 4), order=[0, 1]), gone="MatMul"),
    holds("another order", lambda: slices(order=[0, 2, 1]), gone="MatMul"),
    holds("stacked along another axis", lambda: slices(stack=1), gone="MatMul"),
    holds("transposed slices", lambda: slices(b=weights(5, 2), transpose_a=True), gone="MatMul"),
    holds("a matrix for each slice", two_matrices, gone="MatMul"),
    refuses("parts of slices", rows_of_each, because="no constants"),
    refuses("a product that is read elsewhere", slices_read_twice, because="something else reads"),
    refuses("a product that waits", waiting, because="control edge"),
    holds("every second slice", lambda: slices(feed(6, 5, 4), order=[1, 3, 5]), gone=("MatMul", "Pack")),
    holds("slices in reversed order", lambda: slices(order=[2, 1, 0]), gone=("MatMul", "Pack")),
    holds("every second in reversed order", lambda: slices(feed(7, 5, 4), order=[5, 3, 1]), gone=("MatMul", "Pack")),
    holds("stacked along the last axis", lambda: slices(stack=-1), gone=("MatMul", "Pack")),
    holds("columns by an ellipsis", lambda: indexed(lambda x, i: x[..., i], 5, 4, 3), gone="MatMul"),
    holds("two layers", two_layers, gone=("MatMul", "Pack")),
    holds("two layers over time steps", lambda: two_layers(None, 3, 4, axis=1), gone=("MatMul", "Pack", "Transpose")),
    holds("an einsum each", lambda: equations("ij,jk->ik"), gone="Pack"),
    holds("an einsum for each time step", lambda: equations("bj,jk->bk", None, 3, 4, axis=1), gone="Pack"),
    holds("an einsum of a batch", lambda: equations("hbj,jk->khb", 3, 2, 5, 4), gone="Pack"),
    refuses("an einsum with an ellipsis", lambda: equations("...j,jk->...k"), because="ellipsis"),
    holds("squeezed and joined", squeezed_and_joined, gone=("MatMul", "ConcatV2")),
    holds("joined batches", joined_batches, gone="ConcatV2"),
    holds("reshaped slices", lambda: views(lambda part: tf.reshape(part, [-1, 4])), gone="MatMul"),
    holds("transposed by hand", lambda: views(lambda part: tf.transpose(tf.reshape(part, [4, 5]))), gone="MatMul"),
    holds("means of slices", lambda: views(lambda part: part - tf.reduce_mean(part, 0)), gone="MatMul"),
    holds("rows of each slice", lambda: views(lambda part: tf.stop_gradient(part)[1:3]), gone="MatMul"),
    holds("with an axis and without", lambda: views(lambda part: tf.squeeze(tf.stop_gradient(part)[None], 0))),
    holds("written to a list", written_list, gone=("MatMul", "TensorListStack")),
    refuses("a list with a gap", lambda: written_list((0, 2)), because=""),
    holds("a sum with one matrix", lambda: total(*[weights(4, 2)] * 3), gone="AddN"),
    holds("a sum with a matrix each", lambda: total(*three(4, 2)), gone="AddN"),
    holds("a sum over time steps", lambda: total(*three(4, 2), axis=1), gone=("AddN", "Transpose")),
    holds("a transposed sum", lambda: total(*three(2, 5), transpose_a=True, transpose_b=True), gone="AddN"),
    holds("a sum from left to right", lambda: total(*three(4, 2), add=added), gone="AddV2"),
    holds("a sum with something else", lambda: total(*three(4, 2), add=added, first=weights(2)), gone="AddN"),
    holds(
        "a sum of layers", lambda: tf.add_n([tf.nn.relu(part @ weights(4, 2)) for part in tf.unstack(feed(3, 5, 4))])
    ),
    refuses("a sum whose term is read", read_product, because="something else reads"),
    refuses("results of the one before", chained, because=""),
    refuses("no product", lambda: loop(lambda part: part * weights(4)), because="no product"),
    refuses("an unknown operation", lambda: loop(lambda part: tf.cumsum(part) @ weights(4, 2)), because="Cumsum"),
]
