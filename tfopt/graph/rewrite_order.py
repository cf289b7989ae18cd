"""Order in which laws are tried. Pipeline declarations read it, so it imports nothing."""

# Each law with the reason for its position.
ORDER: tuple[tuple[str, str], ...] = (
    ("strip_unused", "first: unused nodes cost every later law time, and count as consumers"),
    ("freeze_learning_phase", "before laws about conditions: it makes one of the branches dead"),
    ("drop_control_edges", "before the drops, which do not remove a node with an outgoing control edge"),
    ("drop_assertions", "the same: nodes that wait for a check are not dropped"),
    ("drop_numeric_checks", "before laws that match neighbours, between which these checks stand"),
    ("drop_training_nodes", "before all laws that match neighbours, between which these nodes stand"),
    ("fold_constants", "before the folds: they look for one constant where a graph computes it from several"),
    ("push_constants_through_enter", "as soon as they are constants; some are conditions of switches in loops"),
    ("push_constants_through_switch", "the same; nodes computed from them are folded in the next round"),
    ("fold_switches", "as soon as conditions are constants: every later law then sees the live branch"),
    ("fold_branches", "the same for If and Case of TensorFlow 2"),
    ("drop_idle_loops", "the same for loops"),
    ("drop_dropout", "as soon as its rate is a constant; the rest of a branch is then next to its neighbours"),
    ("push_constants_into_bodies", "as soon as they are constants: later laws find them in the bodies"),
    ("push_list_constants", "any time after constants are folded: it replaces several constants by one"),
    ("cancel_transposes", "early: the nodes around a pair are neighbours afterwards"),
    ("cancel_transposes_around", "after it: a pair without an operation in between needs no move"),
    ("fuse_transposes_into_reductions", "after it, which moves a Transpose to its last reader"),
    ("cancel_lists", "early: the element is next to the readers of the part"),
    ("cancel_list_slices", "the same"),
    ("cancel_parts", "the same"),
    ("cancel_shape_lists", "before fold_static_shapes, which looks at each shape alone"),
    ("cancel_concats", "after cancel_lists, which needs no slice; before slices are compared with their input"),
    ("cancel_casts", "early, as the lists"),
    ("fuse_casts", "after it, which needs no Cast"),
    ("cancel_squeezes", "the same"),
    ("drop_whole_slices", "the same"),
    ("fuse_reshapes", "the same"),
    ("fuse_dilated_convs", "before padding and batch norms go into the convolution, which is between them"),
    ("fold_static_shapes", "before Reshapes are compared, and before folds of what is computed from a shape"),
    ("fold_reshape_sizes", "after it, which needs no shapes of other nodes; before laws that look at shapes"),
    ("fold_selects", "as soon as conditions are constants"),
    ("drop_idle_reductions", "early: the nodes around it are neighbours afterwards"),
    ("drop_neutral_fills", "the same"),
    ("fuse_pad_into_conv", "any time before the layout changes; a convolution keeps its kernel"),
    ("drop_idle_layout", "after padding went into convolutions, and lists became lists of one"),
    ("fuse_map_loops", "before the folds, which match neighbours; in a loop these are apart"),
    ("fuse_products_of_slices", "before the folds, which then have one kernel to fold into"),
    ("fuse_products_of_parts", "after it, which needs no copies of a matrix that all products share"),
    ("fuse_products_of_batch", "after it, which makes such products; before the folds, which fold into a MatMul"),
    (
        "push_factors_before_products",
        "after it, which makes a kernel of MatMul; before the folds, which take the factor into a kernel",
    ),
    (
        "push_after_view",
        "before the folds, which then find a node next to the kernel, not behind a reshape or transpose",
    ),
    ("push_before_view", "the same; a node with kernels on both sides goes to the earlier one"),
    ("push_before_concat", "the same: each part meets its own kernel"),
    ("fold_scale_before", "before the shift: a batch norm multiplies first, and the factor then meets the operation"),
    ("fold_shift_before", "before the backward folds, which fold the bias it makes"),
    ("fold_batch_norm", "before fold_scale and fold_shift, its two halves"),
    ("fold_batch_norm_before", "after it: a batch norm with kernels on both sides goes to the earlier one"),
    ("fold_scale", "before the shift: a batch norm multiplies first, and the bias in between must follow"),
    ("fold_shift", "after the scale, whose last operation it follows"),
    ("cancel_reshapes_around_norms", "after the folds; before the next ones, which see rows instead of a batch norm"),
    ("fuse_layer_norms", "after the folds, which match what it removes; before constants change their shape"),
    ("cancel_reshapes_around", "after the folds, which match constants of the shape that a layer has"),
    ("fold_exact_quotients", "after the folds, which fold any quotient; before laws that collect products"),
    ("fold_signs", "after the folds, where a sign goes into a kernel; before laws that collect products"),
    ("fuse_gelus", "after it: the sign is in the constant then"),
    ("push_constants_together", "after the folds, which have a better place for a constant next to a kernel"),
    ("share_common_factors", "after the folds; its sum of constants is folded in the next round"),
    ("push_constants_through_inverses", "after it, for the other operands"),
    ("push_constants_across_products", "the same as push_constants_across_sums"),
    ("push_constants_across_sums", "after it, which joins the constant that it makes with others"),
    ("push_exact_constants", "the same as push_constants_together"),
    ("drop_neutral_elements", "after all laws that make constants: some are 0 or 1"),
    ("fold_absorbing_elements", "the same"),
    ("drop_left_neutral", "after the folds: a sign next to a kernel goes into it"),
    ("share_equal_nodes", "after every fold: a shared node has several consumers, and nothing can be folded into it"),
)

# Used only when requested by name: valid under an assumption that cannot be checked in the graph, or not faster on the
# machine where it was measured (docs/benchmarks.md).
OPT_IN: tuple[tuple[str, str], ...] = (
    ("fold_zero_products", "where no factor is ever infinite or NaN"),
    ("fuse_products_of_one_input", "where one large product is faster than several, and copies of its parts"),
)

# Laws that normalize a graph for laws that match neighbours and constants.
NORMALIZING = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants", "strip_unused")

# Laws that fold batch norms and biases into layers, for components that change layers only.
FOLDING = (*NORMALIZING, "fold_batch_norm", "fold_scale", "fold_shift", "strip_unused", "share_equal_nodes")

# Equal for real numbers, but sums of products are rounded at other places: with the largest floats as inputs, an
# intermediate result may overflow in one form only.
ROUNDING = frozenset({"fold_batch_norm", "fold_batch_norm_before", "fold_scale", "fold_scale_before", "fold_shift"})
ROUNDING |= {"fold_shift_before", "fuse_dilated_convs", "fuse_map_loops", "fuse_pad_into_conv", "push_before_concat"}
ROUNDING |= {"fuse_products_of_parts", "fuse_products_of_slices", "push_after_view", "push_before_view"}
ROUNDING |= {"fuse_gelus", "fuse_layer_norms", "fuse_products_of_batch", "fuse_products_of_one_input"}
ROUNDING |= {"push_constants_across_sums", "push_factors_before_products", "push_list_constants"}
ROUNDING |= {"cancel_reshapes_around_norms", "push_constants_across_products", "push_constants_through_inverses"}
ROUNDING |= {"cancel_transposes_around", "fuse_transposes_into_reductions", "share_common_factors"}

# A negative factor goes into a sum of products, whose zeros have no sign of their own.
SIGN_CHANGING = frozenset({"fold_batch_norm", "fold_batch_norm_before", "fold_scale", "fold_scale_before"})

# Their declared effect: inputs that the model refuses are accepted.
UNCHECKING = frozenset({"drop_assertions", "drop_numeric_checks", "grappler:debug_stripper"})
