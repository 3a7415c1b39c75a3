/** Types that more than one module uses, for the type check alone; a type with one user is a `@typedef` there. */

// Graph dump

type Phase = "forward" | "backward";
type Module = { id: string; path: string; type: string; parent: string | null };
type Source = { file: string; line: number; text: string; function: string };

interface Op {
  id: string;
  name: string;
  phase: Phase;
  module: string;
  attributes: Record<string, unknown>;
  inputs: string[];
  outputs: string[];
  twin: string | null; // the forward op that this backward op is the backward of
  flops: number;
  bytes: number; // read plus written
  source: Source | null;
}

interface Tensor {
  id: string;
  name: string;
  role: string;
  shape: number[];
  dtype: string;
  module: string;
  producer: string | null; // null for a leaf
  consumers: string[];
  gradient_of: string | null;
  note: string | null; // why it has no statistics
}

type Saved = { tensor: string; op: string };

/** one layer of a chain: its index from 1, its name, and ids of tensors */
type Layer = { index: number; name: string } & Record<LayerTensor | "bias" | "bias_gradient", string | null>;

/** a graph dump without its numbers */
interface Topology {
  schema: string;
  modules: Module[];
  ops: Op[];
  tensors: Tensor[];
  saved: Saved[];
  layers: Layer[];
  statistics: { tensor: string[] };
  sources: Record<string, Snippet[]>; // file → the lines around those that ops come from
  error?: Failure | null; // where the recording failed
  op_us: number[] | null; // how long each op took when this topology was recorded, µs; null where that is not known
}

type Snippet = { line: number; text: string }; // consecutive lines; line: number of the first
type JsonNumber = number | "NaN" | "Infinity" | "-Infinity" | null;

/** row i of every column belongs to tensor[i]; null: no finite value, or not applicable */
type StatisticsColumns = Record<FloatColumn, (number | null)[]> & Record<CountColumn, number[]> & {
  tensor: string[];
  histogram: { bins: number; low: (number | null)[]; high: (number | null)[]; counts: number[][] };
};

type Failure = { op: string | null; message: string };
type FaultKind = "failed" | "in_place" | "first_nonfinite" | "wrong_backward" | "unregistered" | "detach"
  | "no_gradient" | "no_optimizer" | "leftover_gradient" | "eval_mode" | "untied" | "broadcast" | "softmax"
  | "exploding" | "vanishing" | "gradient_drop" | "dead" | "saturated" | "starts_at_zero" | "replicas" | "graph_break"
  | "recompilation" | "precision";

/** one finding about a pass */
interface Fault {
  kind: FaultKind;
  message: string; // what was found, and why
  module: string | null; // path of the module that it concerns; it need not have run
  op: string | null;
  tensor: string | null;
  source: Source | null;
  remedy: string | null;
  level: "fault" | "note" | "unchecked"; // note: most likely on purpose; unchecked: a check that was not made
  layers: number[]; // indices of the layers that it makes unhealthy
  rule: string | null; // the criterion and its source
}

interface DumpOnly {
  spec: Spec | null; // null: of no model of ours
  environment: Record<string, unknown>;
  loss: JsonNumber;
  statistics: StatisticsColumns;
  values?: Record<string, JsonNumber[]>; // tensor → its values, of tensors with at most 16 elements
  faults: Fault[];
  error: Failure | null;
  timing: Record<string, number | number[]>;
  precision?: PrecisionErrors | null;
}

/** the run in `of` measured against the one in `against`; entry i of the columns is of tensor[i] */
interface PrecisionErrors {
  name: string; // the precision of this run
  of: string;
  against: string;
  tensor: string[];
  error: number[];
  expected: number[]; // what rounding predicts
  differing?: Record<string, [number, number]>; // tensor of integers or bools → elements that differ, compared elements
}

type Dump = Omit<Topology, "statistics" | "op_us" | "error"> & DumpOnly; // schema chainrule.trace/1

// Specs and pictures

type Spec = Record<string, string | number | boolean>;
type FloatColumn = "mean" | "std" | "min" | "max" | "norm" | "zero_fraction" | "dead_fraction" | "saturation";
type CountColumn = "n" | "nan" | "posinf" | "neginf";

/** everything one answer of the server says, in columns; NaN in a float column stands for null */
interface Picture {
  seq: number;
  key: string; // names the graph shape; two pictures with one key share their topology
  topology: Topology;
  rows: ReadonlyMap<string, number>; // tensor id → row
  floats: Record<FloatColumn, Float64Array>;
  values: readonly Float64Array[]; // column i: value i of each small tensor, by row; NaN where there is none
  integers: Record<CountColumn, Uint32Array>;
  bins: number;
  counts: Uint32Array; // rows × bins
  loss: number | null;
  computeMs: number;
  failed: boolean; // the recording failed; the page shows the recorded part
  precision: PrecisionErrors | null; // of a dump that `chainrule compare --as` made
  faults: Fault[] | null; // of a dump what is wrong with it, the most urgent first; null: told with the theory
  spec: Spec | null; // the spec this is the picture of; null: of no model of ours
  axes: readonly (ValueAxis | null)[] | null; // by row: the axis of its histogram; null: its own [min, max]
  before: Picture | null; // the one that the drag of the slider began with, of the same graph
  hidden: Hidden | null; // a tensor whose figures wait for a guess: in its rows floats are NaN and counts 0
}

interface Hidden {
  row: number;
  rows: ReadonlySet<number>; // that one and whatever else would show the same figure, such as its transpose
  loss: boolean; // whether the loss is among them
  tensor: string; // its name
  statistic: FloatColumn;
}

// Training: the messages of the live path, and run.json

type TrainingStatistic = "update_ratio" | "gradient_norms" | "weight_norms" | "activation_std" | "gradient_std"
  | "dead_fraction" | "saturation";
/** A value per layer; null: not known. */
type LayerValues = Float64Array | (number | null)[];
type StepColumn = readonly [step: number, values: LayerValues];
type TrainingCurve = "loss" | "accuracy" | "heldOutLoss" | "heldOutAccuracy";
type TrainingNumber = number | "NaN" | "Infinity" | "-Infinity";
type TrainingScore = { loss: TrainingNumber; accuracy: number | null };
type TrainingScores = Record<TrainingCurve, number>; // NaN: not known

/** Of one update: the loss before it, and norms per layer of the weight, its gradient and update : weight. */
type TrainingUpdate = { loss: number } & Record<"update_ratio" | "gradient_norms" | "weight_norms", Float64Array>;

interface TrainingRows {
  steps: number[];
  loss: TrainingNumber[];
  gradient_norm: TrainingNumber[];
  weight_norms: TrainingNumber[][]; // updates × layers
  gradient_norms: TrainingNumber[][];
  update_norms: TrainingNumber[][];
}

/** Bytes in base64, row by row. */
type TrainingPixels = { shape: number[]; base64: string };
type TrainingSurface = { extent: number; output: TrainingPixels; units: TrainingPixels[] };

type TrainingEvent = { step: number; kind: string; text: string };

interface TrainingMessage {
  seq: number;
  step: number;
  rows: TrainingRows;
  events: TrainingEvent[];
  batch: TrainingScore;
  held_out: TrainingScore | null;
  surface: TrainingSurface | null;
  confusion: { counts: number[][]; wrong: [sample: number, given: number][] } | null;
}

interface RunDump {
  rows: TrainingRows;
  events: TrainingEvent[];
  steps: number[];
  batch: (TrainingScore | null)[];
  held_out: (TrainingScore | null)[];
  layers: Record<"activation" | "gradient", Record<string, (TrainingNumber | null)[][]>>; // steps × layers
}

/** A run of a folder in /api/v1/runs.json. */
interface RunEntry {
  name: string;
  state: string; // changes with the file
  started: number | null; // seconds since 1970
  written: number;
  ended: string | null; // null: it is written, or was killed
  step: number | null; // the last one
  loss: TrainingNumber | null;
  diverged: number | null; // first step whose loss is not finite and stays so
  events: number;
  spec: string | null; // query of a net of the lab
  model: string | null; // any other, in one line
  error: string | null; // why the file is no run
}
type RunCurve = "loss" | "gradient_norm" | "lr";
/** op: the op in the graph of the step; else the path of the module, or the name of the parameter */
type RunEvent = { run: string; step: number; kind: string; text: string; op: string | null; batch: number | null };
interface RunStepsDump {
  steps: { step: number[] } & Record<RunCurve, (TrainingNumber | null)[]>;
  events: {
    step: number[];
    kind: string[];
    text: string[];
    op: (string | null)[];
    node: (string | null)[];
    batch: (number | null)[];
  };
  more_events: number;
  traces: number[];
  parts: string[];
  statistics: string[];
}
interface RunRowsDump {
  after: number;
  layers: string[];
  steps: number[];
  values: (TrainingNumber | null)[][]; // steps × layers
}

/** A run of the list beside what is known of it. */
interface ListedRun {
  entry: RunEntry;
  run: import("./core/lab/board-run.js").BoardRun | null; // null: not asked for yet
  isShown: boolean;
  line: { colour: string; dash: number[] };
}

interface DataSet {
  features: number;
  classes: number;
  x: number[][];
  y: number[];
  held_out_x: number[][];
  held_out_y: number[];
}
type DataSample = { x: number; y: number; label: number };

/** What the training view shows. ghost: the training before the last change; other: run A's */
interface TrainingShown {
  run: import("./core/lab/training-run.js").TrainingRun;
  ghost: import("./core/lab/training-run.js").TrainingRun | null;
  other: import("./core/lab/training-run.js").TrainingRun | null;
  step: number;
  message: TrainingMessage | null;
  data: DataSet | null;
}

// Theory and profile

type Quantity = "preactivation_std" | "activation_mean" | "activation_std" | "gradient_std" | "dead_fraction"
  | "saturation";
type Expected = { value: number; band: [number, number] }; // what theory says of a figure, and where 19 of 20 draws lie
type Health = "non-finite" | "dead" | "saturated" | "vanishing" | "exploding";

interface LayerTheory {
  index: number; // from 1
  health: Health | null; // null: nothing is wrong
  /** std of the weights' distribution; null without a spec, where it is not read */
  weight_std: number;
  expected: Partial<Record<Quantity, Expected>>;
  reason?: string | null; // why theory says nothing of the layer, or not all
}

/** how to keep the variance from layer to layer */
interface Advice {
  gain: number; // σ_w at which a layer hands on the second moment it got
  change: Spec; // keys of the spec to change
  note: string | null; // what it does not see to
  source: string;
}

/** theory's figures and verdict of a picture, or of one shortly before */
interface Theory {
  seq: number; // of the picture it belongs to
  advice: Advice | null;
  layers: LayerTheory[];
  faults?: Fault[]; // what is wrong with that picture, the most urgent first
}

type Rule = { rule: string; source: string };
type Rules = { expected: Record<Quantity, Rule>; band: Rule; health: Record<Health, Rule> };
type SummaryDump = Record<FloatColumn, number | null> & Record<CountColumn, number>; // one tensor's statistics

type ProfileOnly = Record<LayerTensor | "bias_gradient", SummaryDump | null> & {
  name: string;
  gradient_to_weight_ratio: number | null;
  dead_fraction: number | null;
  saturation: number | null;
};

type LayerProfile = LayerTheory & ProfileOnly;

/** schema chainrule.profile/1 */
interface ProfileDump {
  spec: Spec;
  loss: JsonNumber;
  input: SummaryDump | null;
  layers: LayerProfile[];
}

// Pinned run and prediction

/** run A of a comparison; a dump's layers are matched with those of B */
type PinnedRun = { query: string; profile: ProfileDump; dump?: PinnedDump };

interface PinnedDump {
  index: number;
  name: string;
  dump: DumpFacts;
  picture: Picture;
  shown: { index: number; name: string; dump: DumpFacts } | null; // what it was matched with
  match: GraphMatch | null;
}

/** statistic: null where the figure names none */
type Prediction = { figure: string; tensor: string; statistic: FloatColumn | null; guess: number | null };

// Connection and models of the user

/**
 * fetch: there is a server, but no socket; busy: it has no place for a request just now; locked: it wants another
 * token; reconnecting: there is no server; offline: nor, as the browser has it, a network.
 */
type ConnectionState = "connecting" | "live" | "computing" | "fetch" | "busy" | "locked" | "reconnecting" | "offline";

type ErrorBody = { code: string; message: string; field?: string | null; limit?: unknown };

/** a model's code was read again; error: it fails, so the version before is kept */
type ModelNews = { version: number; groups: string[]; tied: Tied; error: ErrorBody | null };

type Tied = Record<string, string[]>; // a weight of several names → all but the first

/** a model of the user's own, in the place of specs */
interface OwnModel {
  name: string;
  base: string; // what the addresses of its API begin with
  groups: string[]; // paths of the modules that a what-if may change
  tied: Tied;
  version: number;
  error: ErrorBody | null; // what is wrong with the code as it was read last
  seed: number;
}

// Page

interface SpecKey {
  name: string;
  default: string | number | boolean;
  kind: "int" | "float" | "bool" | "choice" | "widths";
  choices: string[] | null;
  minimum: number | null;
  maximum: number | null;
  doc: string;
}

/** what a spec can compute */
interface Program {
  name: string;
  doc: string;
  defaults: Spec; // the whole spec that it has of itself: the keys that it uses, and no other
  page: string | null; // of the chapter
}

type SpecTable = { keys: readonly SpecKey[]; programs: readonly Program[] }; // what may stand in a spec

interface Preset {
  name: string;
  title: string;
  query: string;
  focus: string; // name of the tensor that the experiment is about
  statistic: string;
  theory: string; // what should be seen
  printed: string; // what the chapter shows
  band: Record<string, [number, number]>;
  note: string;
}

interface PageData {
  version: string;
  spec: Spec;
  query: string;
  keys: SpecKey[];
  programs: Program[];
  presets: Preset[];
  data_sets: Record<string, { features: number; classes: number; samples: number; held_out: number }>;
  devices: string[];
  rules: Rules;
  local_rules?: Rules; // of what no spec describes: of each layer, from what came into it
  needs_token: boolean; // whether a request without the page's cookie has to bring the token
  error: ErrorBody | null;
  dump: OpenDump | null; // shown in place of the server's answers
  dumps?: OpenDump[]; // all of them, where the server was opened with several
  model?: OwnModel | null; // whose what-if the page's spec is; the programs and presets are none then
  glossary: Record<string, { term: string; text: string }>; // by slug
  view?: string; // fragment to start with, of a page that was saved
  lessons: Lesson[];
}

type Lesson = { name: string; title: string; steps: LessonStep[] };

/** question, explanation and answers: HTML of the server's making */
interface LessonStep {
  title: string;
  view: string; // address from its ? on; "" to stay
  question: string;
  answers: { text: string; is_right: boolean }[];
  until: string; // the condition that ends the step, see core/lab/lesson.js; "" for none
  explanation: string;
}

/** a dump and where it is: at an address, or here; with what theory expects of it */
type OpenDump = { name: string; url?: string; content?: Dump | null; theory?: Omit<Theory, "seq"> | null };

// What the explorer shows

type Statistic = "std" | "mean"; // the one shown in boxes

/** the one shown per layer; ratio: of gradient to weight */
type ProfileStatistic = Statistic | "dead_fraction" | "saturation" | "ratio";

type LayerTensor = "activation" | "preactivation" | "gradient" | "weight" | "weight_gradient";

/** how all layers are shown at once */
interface LayersOptions {
  form: "heatmap" | "ridgeline";
  of: LayerTensor;
  range: "adaptive" | "fixed";
  axis: "linear" | "log";
}

// Graph and its layout

type GraphArrays = Graph["arrays"];

type Graph = ReturnType<typeof import("./core/graph/graph.js").buildGraph>;
type Item = { kind: "op" | "tensor" | "group"; index: number; half: Phase }; // a thing of the graph, drawn or not

/** which groups are open */
interface Expansion {
  level: string; // "auto": as deep as it is legible; "layer": all but the innermost groups; "all": every one; "0" and up: those less deep than that
  toggled: readonly string[]; // ids of the groups, forward halves, that are otherwise than the level says
  fold: "auto" | "on" | "off"; // whether repeated blocks are folded into one; auto: where there is too much to see
}

interface LayoutOptions {
  orientation: "horizontal" | "vertical"; // the way that depth runs
  length: number; // space along the depth axis, px
  breadth: number; // space across it, px
}

/**
 * a graph laid out at one state of expansion, in columns
 *
 * Boxes come parents before children, in order of execution, forward half before backward half. Coordinates in px.
 */
type Drawing = ReturnType<typeof import("./core/layout/layout.js").drawing>;

/** colours of boxes and widths of edges */
interface Paintwork {
  fill: (kind: Item["kind"], index: number, half: Phase) => string | null; // a CSS colour
  width: (tensor: number) => number; // of an edge, px
  legend: Legend | null;
}

/** stops: colours from low to high; words: [colour, word] where the scale is not one of numbers */
interface Legend {
  title: string;
  unit: string;
  low: number;
  high: number;
  isLog: boolean;
  stops: string[];
  words: [string, string][];
}

type DepthAxis = { positions: ReadonlyMap<string, number>; width: number }; // tensor id → x in px of the panel

// Graph: groups, steps, search

/** ∂to/∂from: one step of the gradient, from the loss back */
interface ChainFactor {
  from: number; // tensor
  to: number; // tensor, nearer to the loss
  ops: number[]; // forward, that make `to` of `from`
  backward: number[]; // the ops that take the gradient from `to` to `from`
  gradient: number; // tensor: ∂loss/∂from; -1 where none was recorded
  gradientBefore: number; // tensor: ∂loss/∂to, likewise
  rule: string | null; // ∂L/∂l2 = ∂L/∂out @ w2ᵀ; null where one of the ops has none
}

interface GroupNode {
  // plumbing: ops between modules that only reshape or compute positions; stretch: layers before, between or after blocks
  kind: "module" | "fold" | "rest" | "plumbing" | "stretch";
  module: number; // position in the topology's modules; of a fold that of the module around it
  items: (number | GroupNode)[]; // forward ops and groups, in order of execution
  repeats: number; // of a fold how often its pattern repeats, of a rest one less; else 0
  differences?: readonly string[]; // of a fold: what is different in some repetitions
}

type ArrowKey = "ArrowLeft" | "ArrowRight" | "ArrowUp" | "ArrowDown";
type OverlayKind = "std" | "gradient_norm" | "dead_fraction" | "time" | "memory" | "flops" | "health" | "difference"
  | "precision";
type TensorFigure = "std" | "mean" | "min" | "max" | "norm" | "zero_fraction" | "dead_fraction" | "saturation" | "nan"
  | "inf" | "numel" | "rank";
type OpFigure = "time" | "flops" | "bytes";
type SearchTextKey = "op" | "name" | "module" | "role" | "dtype" | "phase";
type SearchTest =
  | { kind: "word"; word: string }
  | { kind: "pattern"; pattern: RegExp }
  | { kind: "text"; key: SearchTextKey; word: string }
  | { kind: "shape"; sizes: (number | null)[] } // null: any size
  | { kind: "figure"; figure: TensorFigure | OpFigure; holds: (value: number) => boolean };
type SearchTerm = { isNot: boolean } & SearchTest;
type SearchQuery = { terms: SearchTerm[]; isAboutOps: boolean }; // isAboutOps: a term speaks of what only ops have
type ExecutionSteps = ReturnType<typeof import("./core/graph/steps.js").stepsOf>;

// Layout

type ValuesType = typeof Float64Array | typeof Float32Array | typeof Int32Array | typeof Uint8Array;
type Numbers = import("./core/layout/scene.js").Numbers;
type NumbersStore = import("./core/layout/scene.js").NumbersStore;
type SceneShape = ReturnType<import("./core/layout/frames.js").FrameStore["shapeOf"]>;

/**
 * fold: from the axis to the nearest box; reach: of what stands on the axis; start, end: from a frame to what it holds
 */
type LayoutSpacing = { gap: number; rowGap: number; fold: number; reach: number; start: number; end: number };

type LocalLayout = ReturnType<typeof import("./core/layout/layered.js").layered>;
type LayoutColumns = ReturnType<typeof import("./core/layout/layered.js").fillColumns>;
type LayoutLinks = ReturnType<typeof import("./core/layout/layered.js").passBy>["links"];
type LayoutBoxes = import("./core/layout/boxes.js").Boxes;
type ForwardLines = import("./core/layout/forward.js").ForwardLines;
type LayoutFrame = { scene: LocalScene; shape: SceneShape; layout: LocalLayout }; // an open group, laid out on its own
type FrameStore = import("./core/layout/frames.js").FrameStore;
type GraphIndex = ReturnType<typeof import("./core/layout/index.js").indexGraph>;
type KeptLayout = { boxes: LayoutBoxes; list: RouteList; lines: ForwardLines }; // What is kept of the last drawing.
type LayoutMoves = import("./core/layout/moves.js").Moves;

/** arrays: with the first request of a key */
interface LayoutRequest {
  request: number;
  key: string;
  arrays: GraphArrays | null;
  open: Uint8Array;
  kinds: number;
  options: LayoutOptions;
}

type LayoutAnswer = { request: number; key: string; drawing: Drawing };
type LayoutSizes = typeof import("./core/layout/sizes.js").SIZES.horizontal;
type RouteList = import("./core/layout/routes.js").RouteList;

/** a box: x and w along the depth, y and h across it */
type LayoutRectangle = { x: number; y: number; w: number; h: number };

type LocalScene = ReturnType<import("./core/layout/scene.js").SceneMaker["make"]>;
type StraightBlocks = ReturnType<typeof import("./core/layout/straight.js").align>;

// Drawing of the graph on the screen

type BoxParts = ReturnType<typeof import("./core/view/parts.js").makeParts>;
type TextLine = { text: string; x: number; y: number; size: number };
type BoxLook = ReturnType<typeof import("./core/view/look.js").boxLook>;

interface BoxText {
  level: "wide" | "small" | "narrow" | "strip";
  anchor: "start" | "middle"; // of the name's lines
  isTurned?: boolean; // the name's only line runs upward
  name: TextLine[];
  notes: TextLine[]; // beneath the name, smaller
  value: { x: number; y: number; anchor: "middle" | "end"; size: number; room: number; alone?: number } | null; // of the figure; alone: its room if the name is left out
  isScalar: boolean; // the figure is all there is to show
  plot: Rectangle | null; // room for a histogram, or for several side by side
}

type DrawingIndex = import("./core/view/navigation.js").DrawingIndex;
type WantedDrawing = import("./core/layout/client.js").Wanted;

/** the worst that is wrong, and with how many tensors */
type Ailment = { word: "NaN" | "Inf" | Health; health: Health; tensors: number };

type GraphFacts = import("./core/view/facts.js").GraphFacts;
type NewsType = "box-select" | "group-toggle" | "camera-change" | "drawing-change" | "axis-change";
type TellNews = (type: NewsType, detail: unknown) => void;

/** everything that is drawn from */
interface Sight {
  graph: Graph;
  drawing: Drawing;
  index: DrawingIndex;
  facts: GraphFacts;
  picture: Picture;
  statistic: Statistic;
  paintwork: Paintwork | null;
  palette: Palette;
  lit: Uint8Array | null; // box → whether it is one of those that are pointed out; null: all are alike
  step: number | null; // tensors that no op up to this one has written are empty; null: none are
  scale: number; // px of the screen per px of the drawing
  isVertical: boolean; // whether depth runs downward
}

/** boxes; -1 for none */
interface BoxSelection {
  selected: number;
  twin: number;
  holder: number; // the closed box that holds what is selected
  focused: number;
}

type ViewDetail = ReturnType<typeof import("./core/view/stage.js").detailOf>;
type GraphStage = import("./core/view/stage.js").GraphStage;
type GraphScreen = import("./core/view/screen.js").GraphScreen;
type Camera = { zoom: number; at: number; across: number }; // zoom 1: fit; at, across: what is at the centre, 0 to 1
type PanelSize = { width: number; height: number }; // px
type Region = { x: number; y: number; width: number; height: number };
type Viewport = import("./core/view/viewport.js").Viewport;

// Saved pictures

type ColourScheme = Record<
  "paper" | "raised" | "ink" | "ink-soft" | "ink-muted" | "line" | "forward" | "forward-soft" | "backward"
    | "backward-soft" | "parameter" | "neutral" | "warning",
  string
>;

// Dumps

type DumpProblem = import("./core/dump/checks.js").DumpProblem;

/** a dump without the numbers, which its picture has */
type DumpFacts = Omit<Dump, "statistics" | "values">;

/** a dump that was read; structure: see structureOf, "" where no other dump is open */
type OpenedDump = {
  index: number;
  name: string;
  source: DumpSource;
  dump: DumpFacts;
  picture: Picture;
  structure: string;
};

type DumpSource = { name: string; url?: string; file?: File; text?: string }; // one of url, file and text

/** what is needed to match a graph with another */
type GraphStructure = Pick<Topology, "modules" | "ops" | "tensors" | "layers" | "statistics">;

type StepFigures = Awaited<ReturnType<import("./core/dump/step-figures.js").StepReader["read"]>>;

// Layers, profile, comparison

/** value: null where it is not a finite number */
type ComparedFigure = { value: number | null; text: string; isWarning: boolean };

/** size: in decades or in units of the figure, above 0 where B is greater */
type ComparedContrast = { text: string; size: number | null };

/** tensor: its id in B */
interface ComparedPair {
  tensor: string | null;
  name: string;
  a: ComparedFigure;
  b: ComparedFigure;
  contrast: ComparedContrast;
}

/** one quantity of one layer */
interface DiagnosedFigure {
  layer: Layer;
  quantity: Quantity;
  tensor: string;
  measured: number | null;
  expected: Expected | null;
}

type Diagnosis = ReturnType<typeof import("./core/lab/diagnosis.js").diagnose>;

type ComparisonReference = { picture: Picture; match: GraphMatch }; // A, and which thing of A answers to which of B

type Experiment = ReturnType<typeof import("./core/lab/experiment.js").experiment>;

interface LayerColumn {
  index: number; // of the layer; 0 for the input
  name: string; // of the tensor, "" where the layer has none
  tensor: string | null;
  row: number; // of its statistics, −1 where it has none
}

type ValueRange = { low: number; high: number; threshold: number }; // threshold: see ValueAxis

type LayerHistograms = ReturnType<typeof import("./core/lab/layer-histograms.js").layerHistograms>;
type LayersForm = "heatmap" | "ridgeline";
type LaneKind = "nan" | "posinf" | "above" | "below" | "neginf";
type Lane = { kind: LaneKind; y: number }; // y: of its upper side

type LayersPlan = ReturnType<typeof import("./core/lab/layers-plan.js").planOf>;

/** what of the axes is seen: columns from −0.5, places from 0 to 1 */
type LayersSection = { x: [number, number]; y: [number, number] };

type LayersPaint = { hue: string; paper: string; ink: string; muted: string; line: string; warning: string };
type MatchableThings = { modules: Module[]; ops: Op[]; tensors: Tensor[] }; // of a topology, or of a dump

interface GraphMatch {
  isSame: boolean; // whether the two have one structure
  ops: Int32Array; // of B → of A, -1 for none
  tensors: Int32Array; // of B → of A, -1 for none
  onlyA: UnmatchedThings;
  onlyB: UnmatchedThings;
}

/** modules: path and type · tensors: those that are in no such module, gradients aside */
type UnmatchedThings = { modules: string[]; tensors: number[] };

type NonFiniteKind = "Inf" | "NaN";

type NonFiniteCause = ReturnType<typeof import("./core/lab/non-finite.js").explain>;

type ProfileAxis = import("./core/lab/profile-axes.js").ProfileAxis;
type LayerSpan = { layer: number; title: string; from: number; to: number; middle: number };
type ProfileSeries = "preactivation" | "activation";
type ProfileSide = "forward" | "backward"; // forward: above; backward: beneath

interface ProfilePoint {
  layer: number; // 0: the input
  title: string; // of the layer: "layer 3", or a module's path and type
  series: ProfileSeries;
  at: string; // the tensor that it stands under in the graph
  name: string; // of the measured tensor
  label: string; // the same, less the layer's path
  tensor: string; // what is measured
  gradient: string | null; // with respect to it
}

type ProfileReading = { value: number | null; hasInf: boolean; hasNan: boolean; isHidden: boolean };
type ProfileFigures = ReturnType<typeof import("./core/lab/profile-series.js").figuresOf>;
type SpecControl = HTMLInputElement | HTMLSelectElement;
type SpecField = { key: SpecKey; root: HTMLElement; control: SpecControl; note: HTMLElement };

type TensorSteps = ReturnType<typeof import("./core/lab/tensor-steps.js").tensorSteps>;
type StepsPlan = ReturnType<typeof import("./core/lab/tensor-steps.js").planTensorSteps>;
type ValueAxis = import("./core/value-axis.js").ValueAxis;

// Inspector

type FormulaTerm = { text: string; binds: number }; // binds: how tightly, so that brackets stand only where needed
type BackwardChecker = import("./core/inspector/check.js").Checker;
type AppliedRule = import("./core/inspector/op-facts.js").AppliedRule;
type Inspection = import("./core/inspector/sections.js").Inspection;
type ValueWindow = { rows: [number, number]; cols: [number, number] }; // along the first two dimensions, ends excluded

type ValueCells = ReturnType<typeof import("./core/inspector/value-window.js").cellsOf>;

// Gradient rules

type NDArray = { shape: readonly number[]; values: Float64Array }; // row by row
type OpAttributes = Record<string, unknown>; // of an op

/** of an op */
interface OpCall {
  attributes: OpAttributes;
  operands: readonly (readonly number[])[]; // the shapes of the tensors it was called with
  output: readonly number[];
}

/**
 * A rule: how the gradient of an op's output becomes that of its operands.
 *
 * Texts hold placeholders: {x} is the operand called x, {y} the output, {dx} and {dy} the loss's gradient for them, and
 * what `symbols` names beside.
 */
interface GradientRule {
  names: readonly string[]; // of ops, as recorded
  title: string;
  operands: readonly string[]; // tensors, in the order in which the op takes them
  isVariadic?: boolean; // the op takes any number of tensors, and the first one's gradient is written as all are
  optional?: readonly string[]; // operands that an op may be called without, all of them or none
  forward: string; // what y is
  gradients: readonly (string | null)[]; // of each operand; null: it has none
  derivation: readonly string[];
  source: string;
  isElementwise?: boolean; // operands are broadcast to the shape of y, and gradients summed back to theirs
  /** whether the rule is true of a call; without it, of every call with as many tensors as the rule has operands */
  covers?: (call: OpCall) => boolean;
  /** replacements in the texts, by an op's attributes */
  symbols?: (attributes: OpAttributes, call?: OpCall) => Record<string, string>;
  kernel: RuleKernel;
}

type RuleEntry = Omit<GradientRule, "source"> & { source?: string }; // without a source: from calculus

/** the rule in numbers, on an example */
interface RuleKernel {
  value: (inputs: NDArray[]) => NDArray;
  vjp: (inputs: NDArray[], dy: NDArray, y: NDArray) => (NDArray | null)[];
  shapes: readonly (readonly number[])[]; // of the example's operands
  fixed?: Record<number, readonly number[]>; // operands that are no variables: indices, masks
  isPositive?: boolean; // the operands have to be
}

// Chapter pages

interface PageQuery {
  signal: AbortSignal; // aborted when something newer is asked
  query: string; // of the inputs, without the ?
  ask: (query: string) => Promise<any>; // the page's JSON twin, again while the server is busy; throws ApiError
  partial: (answer: any) => void; // shows what is known so far
}

type CellValue = number | boolean | string | null; // a number; "NaN", "Infinity" or "-Infinity" where it is not finite
type TensorValues = { shape: readonly number[]; values: any; dtype?: string };
type TensorIndex = readonly number[];

// Shared parts of pages

type ApiError = import("./core/api.js").ApiError;
type Rectangle = { x: number; y: number; w: number; h: number };
/** a histogram in few bars; below, above: counts beyond its axis; zero: its place, 0 to 1, null where it is outside */
type Bars = {
  sums: Float64Array;
  tallest: number;
  below: number;
  above: number;
  zero: number | null;
  isNeedle: boolean;
};

type HistogramPaint = { ink: string; muted: string; warning: string }; // ink: of the bars, muted: of the zero line

type Palette = Record<"forward" | "backward" | "parameter" | "neutral" | "ink" | "muted" | "line" | "warning" | "paper",
  string>;

type RgbColour = [number, number, number]; // red, green, blue, 0 to 255

/** The one way that state is held: a value and the functions that want to know of its changes. */
interface Signal<T> {
  value: T;
  subscribe: (listener: (value: T) => void) => () => void; // calls at once and on every change; returns the way out
}

interface View {
  select: string; // id of the selected box or op, "" for none
  statistic: ProfileStatistic; // shown in the profile and, if it is one of theirs, in boxes
  show: "graph" | "layers" | "steps" | "training"; // what stands in the centre
  over: TrainingStatistic; // shown over the steps of a training
  tab: "graph" | "profile" | "inspector" | "controls"; // the panel shown on a narrow screen; graph: the centre
  form: "heatmap" | "ridgeline"; // how the layers are shown
  of: LayerTensor; // which tensors of theirs
  range: "adaptive" | "fixed"; // of the values shown
  axis: "linear" | "log"; // of the values
  bins: "shared" | "own"; // whether the histograms of a kind share an axis
  lesson: string; // the lesson's name, a dot, and the number of its step; "" for none
  answer: string; // number of the chosen answer, from 1; "" for none yet
  mode: "" | "teach"; // teach: large type, for a projector
  predict: string; // figure to be guessed before it is shown, such as l2.std; "" for none
  guess: string; // what was guessed, "" for nothing yet
  a: string; // "?" and the canonical query of the run to compare to, or "dump:" and a dump's place; "" for none
  level: string; // of the groups that are open: "auto", "layer", "all", or how deep
  toggled: string; // groups that are otherwise than the level says, see expansion.js
  fold: "auto" | "on" | "off"; // whether repeated blocks are folded into one
  colour: "" | OverlayKind; // what fills the boxes, "" for nothing
  span: string; // values from first to last colour where they are held, "low:high"
  thickness: "" | "size" | "gradient"; // what widens the edges, "" for nothing
  q: string; // what is searched for
  reach: string; // how far up and down from the selection is lit: "up2", "down", "both1"; "" for not at all
  step: number; // of the execution
  dump: number; // place of the dump that is shown, where several are open
  zoom: number; // 1: fit
  at: number; // depth at the centre of the panel, 0 to 1
  across: number; // across the depth, 0 to 1
}

// Explorer

/**
 * count: how many are open · isOther: what the address says is of a graph that was there before · theory: what it
 * expects, where that came with the dump
 */
type ShownDump = OpenedDump & { count: number; isOther: boolean; theory: Omit<Theory, "seq"> | null };

// Foundations pages

interface SectionsAnswer {
  answer: any;
  errors: readonly ErrorBody[]; // why it is not the answer to all that was asked
  stale: ReadonlySet<string>; // sections that it says nothing of
}

interface EinsumIndex {
  name: string;
  size: number;
  role: "kept" | "batch" | "broadcast" | "summed";
  occurrences: { operand: number; dimension: number; size: number }[];
  output: number | null;
  explanation: string;
}

type EinsumOperand = { name: string; subscripts: string; dimensions: string[]; shape: number[]; values: any };

interface EinsumAnswer {
  equation: string;
  explicit_equation: string;
  is_implicit: boolean;
  written_as: "equation" | "sublists";
  shape: number[];
  indices: EinsumIndex[];
  operands: EinsumOperand[];
  output: { subscripts: string; dimensions: string[] };
  result: { shape: number[]; values: any };
  products: number;
  products_per_element: number;
  loops: string;
  loops_agree: boolean | null;
  loops_max_difference: number | null;
  sublists: string;
  sublists_agree: boolean;
  chapter_rules: { rule: string; broken_by: string[] }[];
}

type JacobianMatrix = { values: CellValue[][] };
interface JacobianWorst {
  row: number;
  column: number;
  output_index: number[];
  input_index: number[];
  analytic: CellValue;
  numeric: CellValue;
  difference: CellValue;
  tolerance: CellValue;
}

interface JacobianComparison {
  output: string;
  input: string;
  output_shape: number[];
  input_shape: number[];
  size: [number, number]; // of the whole Jacobian
  window: { rows: [number, number]; columns: [number, number] }; // the part that is here
  passed: boolean;
  max_difference: CellValue;
  outside: number; // how many elements are not within the tolerance
  worst: JacobianWorst | null;
  kink: string | null; // explains an error at a kink of the forward
  analytic: JacobianMatrix;
  numeric: JacobianMatrix;
  difference: JacobianMatrix;
  tolerance: JacobianMatrix;
  within: JacobianMatrix;
}

type TorchVerdict = { passed: boolean; finds_fault: boolean; message: string };
interface GradientCheck {
  passed: boolean;
  max_difference: CellValue;
  zero_for_zero: boolean;
  takes_undefined: boolean;
  forward_repeatable: boolean;
  backward_repeatable: boolean;
  comparisons: JacobianComparison[];
  torch: TorchVerdict;
}

interface MatmulRung {
  name: string;
  seconds: number | null;
  repeats: number;
  speedup: number | null; // over the loops
  printed_seconds: number; // in the chapter
  max_difference: CellValue;
  rounding_bound: number;
  equal: boolean | null;
  refused: { estimate_seconds: number; limit_seconds: number } | null;
}

type StackLayer = TensorMoments & {
  index: number;
  expected: { mean: FigureValue; std: FigureValue };
  range: [number, number] | null;
};
interface LayerStack {
  layers: StackLayer[];
  first_inf: number | null;
  first_nan: number | null;
  first_all_zero: number | null;
  window: TensorValues;
  further_draws: number;
}
interface StepCurve {
  measured: CellValue[];
  rounding: number;
  truncation: number;
  best_step: number | null;
  machine_epsilon: number;
}
type StepCurves = { eps: number[]; float64: StepCurve; float32: StepCurve };

/** a number, null, or "NaN", "Infinity", "-Infinity" */
type FigureValue = number | string | null;

interface TensorMoments {
  n: number;
  mean: FigureValue;
  std: FigureValue;
  min: number | null;
  max: number | null;
  zeros: number;
  nan: number;
  posinf: number;
  neginf: number;
}
type TensorSummary = TensorMoments & { shape: number[]; histogram: number[] };

// Maps of many nets: the page's data, and the lines of an answer of /api/v1/sweeps

/** argument: of what `name:argument` selects */
type SweepMeasure = {
  name: string;
  title: string;
  doc: string;
  argument: "" | "layer" | "loss";
  log: boolean;
  trains: boolean;
};
type SweepAxis = { key: string; over: string; log: boolean; values: (number | string)[] };
type MapForm = { spec: string; x: string; y: string; seeds: number; measure: string }; // spec: a query; y: "" for none

interface SweepPlan {
  type: "plan";
  query: string; // of the base spec, canonical
  spec: Spec;
  axes: SweepAxis[];
  seeds: number[];
  measure: SweepMeasure;
  cells: number;
  tasks: number;
  curves: { name: string; doc: string; points: ([number, number] | null)[] }[]; // in values of both axes
}

/** net (iy · nx + ix) · seeds + s is number s of cell ix, iy */
type SweepLine = SweepPlan | { type: "cells"; task: number; cells: number[]; values: JsonNumber[]; seconds: number } | {
  type: "failed";
  task: number;
  cells: number[];
  message: string;
} | { type: "done"; seconds: number } | { type: "error"; error: ErrorBody };

interface MapPageData {
  version: string;
  query: string;
  spec: Spec;
  form: { x: string | null; y: string | null; seeds: number; measure: string | null };
  axes: { name: string; doc: string; kind: string; over: string }[];
  measures: SweepMeasure[];
  presets: { name: string; title: string; text: string; query: string }[];
  limits: { cells: number };
  error: ErrorBody | null;
}
