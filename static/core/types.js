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
 * @property {Record<string, Snippet[]>} sources file → the lines around those that ops come from
 * @property {Failure | null} [error] where the recording broke off
 * @property {number[] | null} op_us how long each op took when this topology was recorded, µs; null where that is not known
 */

/** @typedef {{line: number, text: string}} Snippet consecutive lines; line: number of the first */

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

/** @typedef {"failed" | "in_place" | "first_nonfinite" | "unregistered" | "detach" | "no_gradient" | "gradient_drop" | "dead" | "saturated"} FaultKind */

/**
 * @typedef {object} Fault one thing that is wrong with a pass
 * @property {FaultKind} kind
 * @property {string} message what was found, and why
 * @property {string | null} module path of the module that it concerns; it need not have run
 * @property {string | null} op
 * @property {string | null} tensor
 * @property {Source | null} source
 * @property {string | null} remedy
 */

/**
 * @typedef {object} DumpOnly
 * @property {Spec | null} spec null: of no model of ours
 * @property {Record<string, unknown>} environment
 * @property {JsonNumber} loss
 * @property {StatisticsColumns} statistics
 * @property {Fault[]} faults
 * @property {Failure | null} error
 * @property {Record<string, number | number[]>} timing
 */

/** @typedef {Omit<Topology, "statistics" | "op_us" | "error"> & DumpOnly} Dump schema chainrule.trace/1 */

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
 * @property {Fault[] | null} faults of a dump what is wrong with it, the most urgent first; null: told with the theory
 * @property {Spec | null} spec the spec this is the picture of; null: of no model of ours
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
 * @property {number} weight_std of the distribution that the weights are drawn from; null where no spec says it, which nobody asks for there
 * @property {Partial<Record<Quantity, Expected>>} expected
 * @property {string | null} [reason] why theory says nothing of the layer, or not all
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
 * @property {Fault[]} [faults] what is wrong with that picture, the most urgent first
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

/** @typedef {{query: string, profile: ProfileDump, dump?: PinnedDump}} PinnedRun the run that is compared to, A; where it is a dump its layers stand beside those of B that they are matched with */

/**
 * @typedef {object} PinnedDump
 * @property {number} index
 * @property {string} name
 * @property {Dump} dump
 * @property {Picture} picture
 * @property {{index: number, name: string, dump: Dump} | null} shown what it was matched with
 * @property {import("./lab/match.js").Match | null} match
 */

/** @typedef {{figure: string, tensor: string, statistic: FloatColumn | null, guess: number | null}} Prediction statistic: null where the figure names none */

/**
 * @typedef {"connecting" | "live" | "fetch" | "busy" | "locked" | "reconnecting" | "offline"} ConnectionState
 *
 * fetch: there is a server, but no socket; busy: it has no place for a request just now; locked: it wants another token;
 * reconnecting: there is no server; offline: nor, as the browser has it, a network.
 */

/** @typedef {{code: string, message: string, field?: string | null, limit?: unknown}} ErrorBody */

/** @typedef {{version: number, groups: string[], tied: Tied, error: ErrorBody | null}} ModelNews a model's code was read again; error: and it cannot be run, so the version before stands */

/** @typedef {Record<string, string[]>} Tied a weight of several names → all but the first */

/**
 * @typedef {object} OwnModel a model of the user's own, in the place of specs
 * @property {string} name
 * @property {string} base what the addresses of its API begin with
 * @property {string[]} groups paths of the modules that a what-if may change
 * @property {Tied} tied
 * @property {number} version
 * @property {ErrorBody | null} error what is wrong with the code as it was read last
 * @property {number} seed
 */

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
 * @typedef {object} Program what a spec can compute
 * @property {string} name
 * @property {string} doc
 * @property {Spec} defaults the whole spec that it has of itself: the keys that it uses, and no other
 * @property {string | null} page of the chapter
 */

/** @typedef {{keys: readonly SpecKey[], programs: readonly Program[]}} SpecTable what may stand in a spec */

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
 * @property {SpecKey[]} keys
 * @property {Program[]} programs
 * @property {Preset[]} presets
 * @property {Record<string, number>} limits
 * @property {string[]} devices
 * @property {Rules} rules
 * @property {Rules} [local_rules] of what no spec describes: of each layer, from what came into it
 * @property {boolean} needs_token whether a request without the page's cookie has to bring the token
 * @property {ErrorBody | null} error
 * @property {OpenDump | null} dump shown in place of the server's answers
 * @property {OpenDump[]} [dumps] all of them, where the server was opened with several
 * @property {OwnModel | null} [model] whose what-if the page's spec is; the programs and presets are none then
 * @property {string} [view] fragment to start with, of a page that was saved
 */

/** @typedef {{name: string, url?: string, content?: Dump | null, theory?: Omit<Theory, "seq"> | null}} OpenDump a dump and where it is: at an address, or here; with what theory expects of it */

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
 * @typedef {object} GraphArrays what laying out a graph needs, as numbers alone; -1 stands for none everywhere
 *
 * Ops and tensors are counted as in the topology, groups in the order of their first op, 0 being the whole model. A list
 * per item is two arrays: item i's entries are `entries[start[i]]` up to `entries[start[i + 1] - 1]`.
 * @property {number} ops
 * @property {number} tensors
 * @property {number} groups
 * @property {Uint8Array} opHalf 0 forward, 1 backward
 * @property {Int32Array} opGroup innermost group; of a backward op that of its anchor, -1 where it has none
 * @property {Int32Array} opAnchor backward op → the forward op under which it stands: its twin, or the first reader of the leaf whose gradient it accumulates
 * @property {Int32Array} inputStart
 * @property {Int32Array} inputs op → tensors
 * @property {Int32Array} outputStart
 * @property {Int32Array} outputs op → tensors
 * @property {Uint8Array} opLabelLetters longest line of the op's label
 * @property {Uint8Array} opLabelLines
 * @property {Uint8Array} tensorHalf 0 forward, 1 backward
 * @property {Uint8Array} tensorRole position in ROLES of graph.js
 * @property {Int32Array} producer tensor → op
 * @property {Int32Array} consumerStart
 * @property {Int32Array} consumers tensor → ops
 * @property {Int32Array} gradientOf tensor → tensor
 * @property {Float64Array} elements of a tensor
 * @property {Uint8Array} tensorLabelLetters
 * @property {Uint8Array} isResult whether a layer puts the tensor out, so that it is drawn even where nothing reads it
 * @property {Int32Array} savedTensor
 * @property {Int32Array} savedOp by the same position: the forward op that keeps the tensor
 * @property {Int32Array} groupParent
 * @property {Uint8Array} groupKind position in GROUP_KINDS of graph.js
 * @property {Int32Array} groupFirst first forward op of the group
 * @property {Int32Array} groupLast one past its last forward op: a group is a run in the order of execution
 * @property {Int32Array} groupDepth 0 for the whole model
 * @property {Uint8Array} groupIsLeaf whether it holds no group
 * @property {Int32Array} groupRepeats of a fold how often its pattern repeats, of a rest one less; else 0
 * @property {Uint8Array} groupLabelLetters
 * @property {Uint8Array} groupLabelLines
 */

/**
 * @typedef {object} Graph a topology, ready to be looked at; states of expansion do not change it
 * @property {Topology} topology
 * @property {GraphArrays} arrays
 * @property {string[]} opLabel
 * @property {string[]} tensorLabel name, less the path of the module that it stands in
 * @property {string[]} tensorId in addresses: the name where that is unique, else the id
 * @property {string[]} groupId of the forward half, "layers.0/forward"; the backward half's ends in "/backward"
 * @property {string[]} groupLabel
 * @property {Int32Array} groupModule position in the topology's modules
 * @property {ReadonlyMap<string, number>} opIndex by op id
 * @property {ReadonlyMap<string, number>} tensorIndex by tensor id
 * @property {ReadonlyMap<string, Item>} items by id in addresses, see `find` of graph.js
 */

/** @typedef {{kind: "op" | "tensor" | "group", index: number, half: Phase}} Item a thing of the graph, drawn or not */

/**
 * @typedef {object} Expansion which groups are open
 * @property {string} level "layer": all but the innermost groups; "all": every one; "0" and up: those less deep than that
 * @property {readonly string[]} toggled ids of the groups, forward halves, that are otherwise than the level says
 * @property {"auto" | "on" | "off"} fold whether repeated blocks are folded into one; auto: where there is too much to see
 */

/**
 * @typedef {object} LayoutOptions
 * @property {"horizontal" | "vertical"} orientation the way that depth runs
 * @property {number} length space along the depth axis, px
 * @property {number} breadth space across it, px
 */

/**
 * @typedef {object} Drawing a graph laid out at one state of expansion, in columns
 *
 * Boxes come parents before children, in order of execution, forward half before backward half. Coordinates in px.
 * @property {number} boxes
 * @property {Uint8Array} kind position in BOX_KINDS of layout.js
 * @property {Uint8Array} half 0 forward, 1 backward
 * @property {Int32Array} ref the op, tensor or group that a box shows
 * @property {Float32Array} rect x, y, width, height of every box
 * @property {Int32Array} frame box → the open group's box that it stands in, or -1
 * @property {Int32Array} twin box → the box of its gradient, or of what it is the gradient or backward of, or -1
 * @property {Uint8Array} isSatellite whether it stands beside its op: a parameter, a target, or a gradient of one
 * @property {number} routes
 * @property {Int32Array} source box of every route; where the line crosses borders of groups, the box it comes from in the end
 * @property {Int32Array} target
 * @property {Uint8Array} routeKind position in ROUTE_KINDS of layout.js
 * @property {Uint8Array} routeHalf
 * @property {Int32Array} routeTensor the tensor that passes along
 * @property {Int32Array} pointStart where a route's points begin in `points`, one entry more than there are routes
 * @property {Float32Array} points x, y of a start and then of triples of cubic Bézier points, route after route
 * @property {Float32Array} bounds x, y, width, height of every route
 * @property {number} width
 * @property {number} height
 * @property {number} axis where the halves meet, across the depth
 * @property {number} natural length along the depth axis at which every box has its natural size
 * @property {boolean} isElastic whether columns shrink to fit a length; what is too large, or has an open group, keeps its size
 */

/** @typedef {{id: string, kind: "op" | "tensor" | "group" | "frame", half: Phase, x: number, y: number, w: number, h: number}} Box */

/**
 * @typedef {object} Paintwork what colours boxes and widens edges besides their phase
 * @property {(kind: Item["kind"], index: number, half: Phase) => string | null} fill a CSS colour
 * @property {(tensor: number) => number} width of an edge, px
 * @property {Legend | null} legend
 */

/** @typedef {{title: string, unit: string, low: number, high: number, isLog: boolean, stops: string[], words: [string, string][]}} Legend stops: colours from low to high; words: [colour, word] where the scale is not one of numbers */

/** @typedef {{positions: ReadonlyMap<string, number>, width: number}} DepthAxis tensor id → x in px of the panel */

export {};
