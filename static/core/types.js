/**
 * The shapes of everything that crosses a border: the graph dump, the page data, a live frame, a layout.
 * Types only; nothing here runs.
 */

/** @typedef {"forward" | "backward"} Phase */

/** @typedef {{id: string, path: string, type: string, parent: string | null}} Module */

/** @typedef {{file: string, line: number, text: string, function: string}} Source */

/**
 * @typedef {object} Op
 * @property {string} id
 * @property {string} name
 * @property {Phase} phase
 * @property {string} module
 * @property {Record<string, unknown>} attributes
 * @property {string[]} inputs
 * @property {string[]} outputs
 * @property {string | null} twin the forward op that this backward op is the backward of
 * @property {number} flops
 * @property {number} bytes read plus written
 * @property {Source | null} source
 */

/**
 * @typedef {object} Tensor
 * @property {string} id
 * @property {string} name
 * @property {string} role
 * @property {number[]} shape
 * @property {string} dtype
 * @property {string} module
 * @property {string | null} producer null for a leaf
 * @property {string[]} consumers
 * @property {string | null} gradient_of
 * @property {string | null} note why it has no statistics
 */

/** @typedef {{tensor: string, op: string}} Saved */

/**
 * @typedef {object} Layer one layer of a chain; every value but index and name is a tensor id
 * @property {number} index from 1
 * @property {string} name
 * @property {string | null} preactivation
 * @property {string | null} activation
 * @property {string | null} gradient of the loss for the activation
 * @property {string | null} weight
 * @property {string | null} weight_gradient
 * @property {string | null} bias
 * @property {string | null} bias_gradient
 */

/**
 * @typedef {object} Topology a graph dump without its numbers
 * @property {string} schema
 * @property {Module[]} modules
 * @property {Op[]} ops
 * @property {Tensor[]} tensors
 * @property {Saved[]} saved
 * @property {Layer[]} layers
 * @property {{tensor: string[]}} statistics
 */

/** @typedef {number | "NaN" | "Infinity" | "-Infinity" | null} JsonNumber */

/**
 * @typedef {object} StatisticsColumns row i of every column belongs to tensor[i]; null: no finite value, or not applicable
 * @property {string[]} tensor
 * @property {number[]} n
 * @property {(number | null)[]} mean
 * @property {(number | null)[]} std
 * @property {(number | null)[]} min
 * @property {(number | null)[]} max
 * @property {(number | null)[]} norm
 * @property {(number | null)[]} zero_fraction
 * @property {(number | null)[]} dead_fraction
 * @property {(number | null)[]} saturation
 * @property {number[]} nan
 * @property {number[]} posinf
 * @property {number[]} neginf
 * @property {{bins: number, low: (number | null)[], high: (number | null)[], counts: number[][]}} histogram
 */

/** @typedef {{op: string | null, message: string}} Failure */

/**
 * @typedef {object} DumpOnly
 * @property {Spec} spec
 * @property {JsonNumber} loss
 * @property {StatisticsColumns} statistics
 * @property {Failure | null} error
 * @property {Record<string, number>} timing
 */

/** @typedef {Omit<Topology, "statistics"> & DumpOnly} Dump schema chainrule.trace/1 */

/** @typedef {Record<string, string | number | boolean>} Spec */

/** @typedef {"mean" | "std" | "min" | "max" | "norm" | "zero_fraction" | "dead_fraction" | "saturation"} FloatColumn */

/** @typedef {"n" | "nan" | "posinf" | "neginf"} CountColumn */

/**
 * @typedef {object} Picture everything one answer of the server says, in columns; NaN in a float column stands for null
 * @property {number} seq
 * @property {string} key names the graph shape; two pictures with one key share their topology
 * @property {Topology} topology
 * @property {ReadonlyMap<string, number>} rows tensor id → row
 * @property {Record<FloatColumn, Float64Array>} floats
 * @property {Record<CountColumn, Uint32Array>} integers
 * @property {number} bins
 * @property {Uint32Array} counts rows × bins
 * @property {number | null} loss
 * @property {number} computeMs
 * @property {boolean} failed the recording broke off; what there is of it is shown
 * @property {Spec} spec the spec this is the picture of
 * @property {Hidden | null} hidden a tensor whose figures wait for a guess: in its rows floats are NaN and counts 0
 */

/**
 * @typedef {object} Hidden
 * @property {number} row
 * @property {ReadonlySet<number>} rows that one and whatever else would show the same figure, such as its transpose
 * @property {boolean} loss whether the loss is among them
 * @property {string} tensor its name
 * @property {FloatColumn} statistic
 */

/** @typedef {"preactivation_std" | "activation_mean" | "activation_std" | "gradient_std" | "dead_fraction" | "saturation"} Quantity */

/** @typedef {{value: number, band: [number, number]}} Expected what theory says of a figure, and where 19 of 20 draws lie */

/** @typedef {"non-finite" | "dead" | "saturated" | "vanishing" | "exploding"} Health */

/**
 * @typedef {object} LayerTheory
 * @property {number} index from 1
 * @property {Health | null} health null: nothing is wrong
 * @property {number} weight_std of the distribution that the weights are drawn from
 * @property {Partial<Record<Quantity, Expected>>} expected
 */

/**
 * @typedef {object} Advice how to keep the variance from layer to layer
 * @property {number} gain σ_w at which a layer hands on the second moment it got
 * @property {number | null} scale the spec's scale with that gain in every layer, if one suits them all
 * @property {Spec} change keys of the spec to change
 * @property {string | null} note what it does not see to
 * @property {string} source
 */

/**
 * @typedef {object} Theory what theory expects of a picture, and the verdict on it; it may be that of a picture shortly before
 * @property {number} seq of the picture it belongs to
 * @property {Advice | null} advice
 * @property {number | null} first_inf_layer
 * @property {number | null} first_nan_layer
 * @property {LayerTheory[]} layers
 */

/** @typedef {{rule: string, source: string}} Rule */

/**
 * @typedef {object} Rules
 * @property {Record<Quantity, Rule>} expected
 * @property {Rule} band
 * @property {Record<Health, Rule>} health
 */

/** @typedef {Record<FloatColumn, number | null> & Record<CountColumn, number>} SummaryDump one tensor's statistics */

/**
 * @typedef {object} ProfileOnly
 * @property {string} name
 * @property {SummaryDump | null} preactivation
 * @property {SummaryDump | null} activation
 * @property {SummaryDump | null} gradient
 * @property {SummaryDump | null} weight
 * @property {SummaryDump | null} weight_gradient
 * @property {SummaryDump | null} bias_gradient
 * @property {number | null} gradient_to_weight_ratio
 * @property {number | null} dead_fraction
 * @property {number | null} saturation
 */

/** @typedef {LayerTheory & ProfileOnly} LayerProfile */

/**
 * @typedef {object} ProfileDump schema chainrule.profile/1
 * @property {Spec} spec
 * @property {JsonNumber} loss
 * @property {number | null} first_inf_layer
 * @property {number | null} first_nan_layer
 * @property {Advice | null} advice
 * @property {SummaryDump | null} input
 * @property {LayerProfile[]} layers
 */

/** @typedef {{query: string, profile: ProfileDump}} PinnedRun the run that is compared to, A */

/** @typedef {{figure: string, tensor: string, statistic: FloatColumn | null, guess: number | null}} Prediction statistic: null where the figure names none */

/** @typedef {{code: string, message: string, field?: string | null, limit?: unknown}} ErrorBody */

/**
 * @typedef {object} SpecKey
 * @property {string} name
 * @property {string | number | boolean} default
 * @property {"int" | "float" | "bool" | "choice" | "widths"} kind
 * @property {string[] | null} choices
 * @property {number | null} minimum
 * @property {number | null} maximum
 * @property {string} doc
 */

/**
 * @typedef {object} Preset
 * @property {string} name
 * @property {string} title
 * @property {Record<string, unknown>} spec the keys that differ from the default
 * @property {string} query
 * @property {string} focus name of the tensor that the experiment is about
 * @property {string} statistic
 * @property {string} theory what should be seen
 * @property {string} printed what the chapter shows
 * @property {Record<string, [number, number]>} band
 * @property {string} note
 */

/**
 * @typedef {object} PageData
 * @property {string} version
 * @property {Spec} spec
 * @property {string} query
 * @property {Spec} defaults
 * @property {SpecKey[]} keys
 * @property {Preset[]} presets
 * @property {Record<string, number>} limits
 * @property {string[]} devices
 * @property {Rules} rules
 * @property {boolean} needs_token whether a request without the page's cookie has to bring the token
 * @property {ErrorBody | null} error
 */

/** @typedef {"std" | "mean"} Statistic the one shown in boxes */

/** @typedef {Statistic | "dead_fraction" | "saturation" | "ratio"} ProfileStatistic the one shown per layer; ratio: of gradient to weight */

/** @typedef {"activation" | "preactivation" | "gradient" | "weight" | "weight_gradient"} LayerTensor */

/**
 * @typedef {object} LayersOptions how all layers are shown at once
 * @property {"heatmap" | "ridgeline"} form
 * @property {LayerTensor} of
 * @property {"adaptive" | "fixed"} range
 * @property {"linear" | "log"} axis
 */

/**
 * @typedef {object} SceneGroup a run of ops of one module in one phase, drawn as one box
 * @property {string} id e.g. "layers.0/forward"
 * @property {Phase} half
 * @property {Module} module
 * @property {string} label
 * @property {string[]} ops
 * @property {string | null} twin id of the group of the other phase
 */

/**
 * @typedef {object} SceneTensor a tensor drawn as a box
 * @property {string} id its name where that is unique, else its tensor id
 * @property {string} tensor
 * @property {Phase} half
 * @property {string | null} satellite the group it is drawn beside (parameters, targets and their gradients)
 * @property {string | null} twin scene id of the tensor that this is the gradient of
 */

/** @typedef {"data" | "satellite" | "saved" | "fold"} EdgeKind */

/** @typedef {{source: string, target: string, kind: EdgeKind, half: Phase, tensor: string | null}} SceneEdge */

/**
 * @typedef {object} Scene
 * @property {SceneGroup[]} groups
 * @property {SceneTensor[]} tensors
 * @property {SceneEdge[]} edges
 */

/** @typedef {{id: string, kind: "op" | "tensor", half: Phase, x: number, y: number, w: number, h: number}} Box */

/** @typedef {{edge: SceneEdge, points: number[]}} Route points: x, y of a start and then of triples of cubic Bézier points */

/**
 * @typedef {object} LayoutOptions
 * @property {"horizontal" | "vertical"} orientation the way that depth runs
 * @property {number} length space along the depth axis, px
 * @property {number} breadth space across it, px
 */

/**
 * @typedef {object} Layout
 * @property {Box[]} boxes
 * @property {Route[]} routes
 * @property {number} width
 * @property {number} height
 * @property {number} natural length along the depth axis at which every box has its natural size
 */

/** @typedef {{positions: ReadonlyMap<string, number>, width: number}} DepthAxis tensor id → x in px of the panel */

export {};
