// What the API takes and answers. Written by `python -m tests.web_unit.api_types` from the description
// of the API (/api/v1/openapi.json); a test fails when it is old. Nothing of it is served.

/** The result of a decision, and the next actions. */
export interface Acted {
  version: number;
  run_id: string;
  status: string;
  did: string;
  recorded: boolean;
  goes_on: boolean;
  freed: string[];
  effects: string[];
  children: string[];
}

/** Something that can be done now; `command` can be pasted into a shell, or is empty. */
export interface Action {
  meaning: string;
  command: string;
}

/** A run beside which a worker takes no other, and why. */
export interface Alone {
  run_id: string;
  why: string;
}

/** Answer a question of a run. */
export interface Answer {
  name: string;
  value: any;
  expected_number?: number | null;
}

/** Approve one call of an effect. */
export interface Approve {
  step: string;
  digest: string;
  expected_number?: number | null;
}

/** Changes of objects that belong to no run, newest first. */
export interface Audit {
  version: number;
  audit: AuditView[];
}

/** One change, as it was recorded. */
export interface AuditView {
  at: string;
  actor: string;
  what: string;
  did: string;
  detail: Record<string, any>;
}

/** Something that took time. */
export interface Bar {
  kind: string;
  key: string;
  name: string;
  effect: boolean;
  status: string;
  start: string;
  end: string | null;
  attempt: number;
  generation: number;
  lane: number;
  branch: string;
  superseded: boolean;
  count: number;
  known_until: string | null;
}

/** A budget as it stands: limits (null is no limit), what is spent, what is left. */
export interface BudgetView {
  root: string;
  usd: number | null;
  spent_usd: number;
  left_usd: number | null;
  tokens: number | null;
  spent_tokens: number;
  left_tokens: number | null;
  steps: number | null;
  spent_steps: number;
  left_steps: number | null;
  wall_s: number | null;
  elapsed_s: number;
  left_s: number | null;
  unpriced: string[];
}

/** Cancel a run, and its children with it. */
export interface Cancel {
  reason?: string;
}

/** Something that holds one run or many. */
export interface Cause {
  reason: string;
  what: string;
  total: number;
  runs: string[];
  flow: string;
  since: string;
  actions: Action[];
  frees_all: boolean;
}

/** One difference from what the run recorded. */
export interface Change {
  kind: string;
  name: string;
  was: string;
  now: string;
  policy: string;
  steps: string[];
  effects: string[];
  did: string;
}

/** A child, in a line. */
export interface ChildView {
  run_id: string;
  flow: string;
  status: string;
  held_reason: string | null;
  owner_died: boolean;
}

/** One place where two values differ; the path of the whole value is empty. */
export interface Difference {
  path: string;
  kind: "added" | "changed" | "removed";
  before: any;
  after: any;
}

/** An effect that may or may not have happened, in a run that is held for it. */
export interface DoubtView {
  run_id: string;
  flow: string;
  step: string;
  args: any;
  args_text: string | null;
  key: string | null;
  digest: string | null;
  since: string;
  verdict: string;
  policy: string;
  etag: string;
}

/** An entry of a journal. */
export interface EntryData {
  seq: number;
  kind: string;
  step: string | null;
  attempt: number;
  at: string;
  body: Record<string, any>;
}

/** The response for an error. */
export interface Error {
  error: ErrorTold;
  version: number;
}

/** An error, by the name of its class. */
export interface ErrorTold {
  type: string;
  message: string;
  run_id: string | null;
  effects: string[] | null;
}

/** An exception as the journal tells it. */
export interface ErrorView {
  type: string;
  message: string;
}

/** One time that a process had the run. */
export interface ExecutionView {
  owner: string;
  start: string;
  end: string | null;
  how: string;
  found_dead: string | null;
}

/** The status of a run, what is known, what is not, and what can be done. */
export interface Explanation {
  run_id: string;
  flow: string;
  status: string;
  case: string;
  known: string[];
  unknown: string[];
  actions: Action[];
  warning: string | null;
  waits: Wait[];
}

/** Something about a run that a person should know of. */
export interface Finding {
  run_id: string;
  flow: string;
  kind: Found;
  severity: Severity;
  id: string;
  since: string;
  steps: string[];
  entries: number[];
  text: string;
  actions: string[];
  noted_at: string | null;
  did: string | null;
  open: boolean;
}

/** The current findings of the watchdog. */
export interface Findings {
  version: number;
  findings: Finding[];
  looked_at: number;
  complete: boolean;
  troubles: string[];
}

/** Workers, queues and schedules. */
export interface Fleet {
  version: number;
  workers: WorkerView[] | null;
  queues: QueueView[] | null;
  schedules: ScheduleView[] | null;
  troubles: string[];
}

/** Start a new run from a step of another run. */
export interface Fork {
  new_run_id: string;
  before: string;
  input?: Record<string, any> | null;
  state?: any;
  results?: Record<string, any> | null;
  confirm?: boolean;
}

/** A fork before it is made, and the effects that it may repeat. */
export interface ForkPreview {
  origin: string;
  before: string;
  differences: string[];
  effects: Repeated[];
}

/** The preview of a fork. */
export interface ForkPreviewTold {
  version: number;
  preview: ForkPreview;
}

/** The new fork. */
export interface Forked {
  version: number;
  run_id: string;
  did: string;
  origin: string;
  before: string;
  repeats: string[];
  created: boolean;
  input_checked: boolean | null;
}

/** The kinds of findings. */
export type Found = "duplicate_action" | "looping" | "partial_failure" | "runaway_cost" | "stuck";

/** Reports that the server answers; nothing else is shown without a credential. */
export interface Health {
  ok: boolean;
}

/** Some entries of a journal. */
export interface HistoryTold {
  version: number;
  entries: EntryData[];
  next: number | null;
  last: number;
}

/** The visitor and the store. */
export interface Me {
  version: number;
  actor: string;
  role: string;
  expires_at: string;
  store: StorePlace;
  warning: string | null;
  now: string;
}

/** No parameters, or an empty body. */
export interface Nothing {
}

/** Hold a run until somebody resumes it. */
export interface Pause {
  reason?: string;
}

/** Decisions that wait for a person. */
export interface Pending {
  version: number;
  questions: QuestionView[];
  doubts: DoubtView[];
  troubles: Unreadable[];
  held: Cause[];
}

/** One effect of a run, and what a rollback makes of it. */
export interface PlannedUndo {
  step: string;
  fate: string;
  means: string;
  undo_step: string;
  generation: number;
  business_key: string | null;
}

/** Something that a run asks, with all that is needed to answer it. */
export interface QuestionView {
  run_id: string;
  name: string;
  number: number;
  kind: string;
  text: string;
  to: string | null;
  asked_at: string;
  until: string | null;
  step: string;
  choices: any[] | null;
  schema: Record<string, any> | null;
  effect: string | null;
  args: any;
  args_text: string | null;
  digest: string | null;
  holds_s: number | null;
  refused: string[];
}

/** The current state of a queue. */
export interface QueueTold {
  version: number;
  queue: QueueView;
}

/** A queue: what waits in it, what is at work, what it allows, who takes from it. */
export interface QueueView {
  name: string;
  ready: number;
  delayed: number;
  running: number;
  failed: number;
  held: number;
  quarantined: number;
  oldest_s: number | null;
  saturation: number | null;
  workers: number;
  workers_saturation: number | null;
  concurrency: number | null;
  concurrency_per_key: number | null;
  rate: number | null;
  rate_per_key: number | null;
  period_s: number;
  paused: boolean;
  abandoned: number;
}

/** Reject a question or an approval. */
export interface Reject {
  name: string;
  reason?: string;
  expected_number?: number | null;
}

/** An effect of the other run that the fork would execute again, under a new key. */
export interface Repeated {
  step: string;
  what: string;
}

/** Resume a failed or held run. */
export interface Resume {
  accept_change?: boolean;
  confirm?: boolean;
  drift?: "keep" | "redo" | null;
}

/** Resume all failed runs, or all that are quarantined or diverged. */
export interface ResumeAll {
  queue?: string | null;
  flow?: string | null;
  held_reason?: "diverged" | "quarantined" | null;
  accept_change?: boolean;
}

/** The changes that a run finds when it goes on after a gap. */
export interface ResumePreview {
  run_id: string;
  flow: string;
  status: string;
  gap_s: number;
  last: string;
  died: boolean;
  changes: Change[];
  redone: string[];
  in_doubt: string[];
  unseen: string[];
  generation: number | null;
  superseded: string[];
  refused: string;
}

/** The preview of a resume. */
export interface ResumePreviewTold {
  version: number;
  preview: ResumePreview;
}

/** The result for one of the runs that are resumed together. */
export interface Resumed {
  run_id: string;
  did: string;
  error: string | null;
}

/** The outcome for each run. */
export interface ResumedAll {
  version: number;
  resumed: Resumed[];
}

/** Undo a run's effects, the last one first. */
export interface Rollback {
  reason?: string;
  to?: string | null;
  confirm?: boolean;
}

/** The effects of a run, in the order in which a rollback would undo them or leave them as they are. */
export interface RollbackPreview {
  run_id: string;
  flow: string;
  status: string;
  to: string | null;
  effects: PlannedUndo[];
  children: string[];
  confirm: boolean;
  stopped: string[];
  forks: string[];
  elsewhere: string;
}

/** The preview of a rollback. */
export interface RollbackPreviewTold {
  version: number;
  preview: RollbackPreview;
}

/** A run, with the data for a decision about it. */
export interface Run {
  version: number;
  run: RunView;
  steps_total: number;
  etag: string;
  explanation: Explanation | null;
  findings: Finding[];
  questions: QuestionView[];
  doubts: DoubtView[];
  trace_id: string;
}

/** One line of a list of runs: what the row says, without reading the journal. */
export interface RunSummary {
  run_id: string;
  flow: string;
  status: string;
  held_reason: string | null;
  generation: number;
  owner: string | null;
  current_step: string | null;
  totals: Totals;
  tags: Record<string, string>;
  created_at: string;
  updated_at: string;
  version: string;
  waiting_for: string | null;
  failed_in: string | null;
  owner_died: boolean;
  abandoned: boolean;
  running: RunningStep | null;
  rolling_back: boolean;
}

/** A run as a whole. */
export interface RunView {
  run_id: string;
  flow: string;
  status: string;
  held_reason: string | null;
  held_detail: string | null;
  actions: string[];
  generation: number;
  owner: string | null;
  input: any;
  result: any;
  error: ErrorView | null;
  current_step: string | null;
  steps: StepView[];
  step_counts: StepCounts;
  totals: Totals;
  tags: Record<string, string>;
  created_at: string;
  updated_at: string;
  version: string;
  origin: string | null;
  budget: BudgetView | null;
  waiting_for: string | null;
  signals: SignalView[];
  parent: string | null;
  children: ChildView[];
  children_by_status: Record<string, number>;
  deadline: string | null;
  stopping: StoppingView | null;
  failed_in: string | null;
  owner_died: boolean;
  abandoned: boolean;
  running: RunningStep[];
  rolling_back: boolean;
  etag: string;
}

/** A step that has begun and has no outcome, as far as its journal says. The start of a plain step is written when it is still at work at the next pulse of its process, three times per lease; one that began since then is not known. */
export interface RunningStep {
  key: string;
  attempt: number;
  since: string;
}

/** A page of the list. With `next` there may be more runs, even if this page is not full. */
export interface Runs {
  version: number;
  runs: RunSummary[];
  next: string | null;
  counts: Record<string, number> | null;
}

/** The current state of a schedule. */
export interface ScheduleTold {
  version: number;
  schedule: ScheduleView;
}

/** The state of a schedule. Times are those of its time zone. */
export interface ScheduleView {
  name: string;
  flow: string;
  when: string;
  timezone: string;
  catch_up: string;
  input: Record<string, string>;
  paused: boolean;
  next_at: string | null;
  last_run_id: string | null;
  last_status: string | null;
  last_at: string | null;
}

/** One value for each bucket of time, oldest first. A count of nothing is 0; what cannot be known because there is nothing to say it of is None. */
export interface Series {
  steps: number[];
  attempts: number[];
  errors: number[];
  error_rate: (number | null)[];
  doubts: number[];
  retries: number[];
  step_p50_ms: (number | null)[];
  step_p95_ms: (number | null)[];
  run_p50_s: (number | null)[];
  run_p95_s: (number | null)[];
  runs_completed: number[];
  runs_failed: number[];
  runs_held: number[];
  cost_usd: number[];
  tokens: number[];
  traced: (number | null)[];
  saturation: (number | null)[];
  waiting: (number | null)[];
}

/** Set new limits of a run's budget. */
export interface SetBudget {
  usd?: number | null;
  tokens?: number | null;
  steps?: number | null;
  wall?: string | number | null;
}

/** Set limits of a queue, for every worker at once. */
export interface SetQueue {
  concurrency?: number | null;
  concurrency_per_key?: number | null;
  rate?: number | null;
  rate_per_key?: number | null;
  period?: string | number;
  paused?: boolean;
}

/** Settle an effect that is in doubt. */
export interface Settle {
  step: string;
  outcome: "done" | "failed" | "not_done";
  result?: any;
  reason?: string;
  confirm?: boolean;
}

/** What somebody decided of a step whose outcome was not known. */
export interface SettledView {
  outcome: string;
  by: string;
  at: string;
  after_s: number | null;
}

/** How much a person is needed. */
export type Severity = "error" | "info" | "warning";

/** The credential. */
export interface SignIn {
  token?: string;
}

/** Send a signal to a run. */
export interface Signal {
  name: string;
  value?: any;
  signal_id?: string | null;
}

/** A signal or an answer. */
export interface SignalView {
  kind: string;
  name: string;
  id: string;
  actor: string;
  sent_at: string;
  status: string;
  value: any;
  why: string | null;
}

/** The signed-in visitor. */
export interface SignedIn {
  version: number;
  actor: string;
  role: string;
  csrf: string;
}

/** Confirms that the session has ended. */
export interface SignedOut {
  version: number;
  ok: boolean;
}

/** One snapshot of a loop, without its state. */
export interface SnapshotView {
  seq: number;
  at: string;
  path: string;
  turn: number;
  bytes: number;
  generation: number;
  superseded: boolean;
  borrowed: boolean;
}

/** The snapshots of a run's loops. */
export interface Snapshots {
  version: number;
  snapshots: SnapshotView[];
}

/** The state of a snapshot. */
export interface State {
  version: number;
  state: StateView;
}

/** The differences between two snapshots. */
export interface StateDiff {
  version: number;
  before: SnapshotView;
  after: SnapshotView;
  differences: Difference[];
  cut: boolean;
}

/** The state of a loop as a snapshot has it. */
export interface StateView {
  seq: number;
  at: string;
  path: string;
  turn: number;
  state: any;
}

/** How many steps and effects a run has called, and what they came to. This is the one definition: `runs`, `show`, `explain`, the page, its timeline and the API count like this. A step counts once in each generation that called it, however often it was tried. Waits, child runs and recorded values stand in the list of steps, and are counted as `others`. What a fork borrowed is the other run's, and is not counted. */
export interface StepCounts {
  called: number;
  done: number;
  left_behind: number;
  failed: number;
  others: number;
}

/** One step of a run, in its latest generation or superseded by a later one. */
export interface StepView {
  key: string;
  name: string;
  status: string;
  attempts: number;
  retry_count: number;
  effect: boolean;
  started_at: string;
  ended_at: string | null;
  duration_s: number | null;
  error: ErrorView | null;
  degraded: ErrorView | null;
  generation: number;
  superseded: boolean;
  transaction: boolean;
  borrowed: boolean;
  settled: SettledView | null;
}

/** Some steps of a run. */
export interface Steps {
  version: number;
  steps: StepView[];
  total: number;
  next: number | null;
}

/** A request to stop a run that is on its way to the process that has it. */
export interface StoppingView {
  what: string;
  actor: string;
  at: string;
  reason: string;
}

/** The address of the store. */
export interface StorePlace {
  url: string;
  namespace: string;
}

/** A run over time. */
export interface Timeline {
  run_id: string;
  start: string;
  end: string;
  open: boolean;
  bars: Bar[];
  lanes: number;
  executions: ExecutionView[];
  steps: number;
  joined: number;
  borrowed: number;
}

/** A run over time. */
export interface TimelineTold {
  version: number;
  timeline: Timeline;
}

/** What a run has cost so far; replays count nothing. */
export interface Totals {
  steps: number;
  attempts: number;
  degraded: number;
  usage: Record<string, any>;
}

/** What a fleet did over time. */
export interface Trends {
  start: string;
  end: string;
  bucket_s: number;
  flow: string | null;
  flows: string[];
  processes: number;
  series: Series;
  totals: Series;
  lost: string;
  notes: string[];
}

/** Measures over time. */
export interface TrendsTold {
  version: number;
  trends: Trends;
}

/** A run that may wait for a person, and cannot be read. */
export interface Unreadable {
  run_id: string;
  error: string;
}

/** The things that a run may wait for. */
export type Wait = "answer" | "approval" | "child" | "deadline" | "key" | "queue" | "retry" | "signal" | "sleep";

/** A worker that is alive, as it last said. */
export interface WorkerView {
  name: string;
  pid: number;
  host: string;
  queues: string[] | null;
  flows: Record<string, string[]>;
  concurrency: number;
  working: number;
  saturation: number;
  draining: boolean;
  alone: Alone | null;
  emptying: boolean;
  unread: string | null;
}

/** What can be read. */
export interface Reads {
  "me": { asked: {}; answer: Me };
  "runs": { asked: { status?: string[] | string | null; flow?: string | null; queue?: string | null; held_reason?: string | null; tag?: string | null; version?: string | null; parent?: string | null; finding?: string | null; older_than?: string | null; search?: string | null; limit?: number | string | null; before?: number | string | null }; answer: Runs };
  "run": { asked: { id: string | null; full?: boolean | number | null; steps?: number | string | null }; answer: Run };
  "run/steps": { asked: { id: string | null; after?: number | string | null; limit?: number | string | null }; answer: Steps };
  "run/timeline": { asked: { id: string | null }; answer: TimelineTold };
  "run/snapshots": { asked: { id: string | null }; answer: Snapshots };
  "run/state": { asked: { id: string | null; seq?: number | string | null; path?: string | null; full?: boolean | number | null }; answer: State };
  "run/state-diff": { asked: { id: string | null; from: number | string | null; to: number | string | null; path?: string | null }; answer: StateDiff };
  "run/preview-resume": { asked: { id: string | null }; answer: ResumePreviewTold };
  "run/preview-rollback": { asked: { id: string | null; to?: string | null }; answer: RollbackPreviewTold };
  "run/preview-fork": { asked: { id: string | null; before: string | null; new_run_id?: string | null }; answer: ForkPreviewTold };
  "pending": { asked: { to?: string | null; limit?: number | string | null }; answer: Pending };
  "fleet": { asked: {}; answer: Fleet };
  "findings": { asked: {}; answer: Findings };
  "trends": { asked: { since?: string | null; flow?: string | null }; answer: TrendsTold };
  "audit": { asked: { limit?: number | string | null }; answer: Audit };
  "run/history": { asked: { id: string | null; after?: number | string | null; limit?: number | string | null; step?: string | null; full?: boolean | number | null }; answer: HistoryTold };
  "openapi.json": { asked: {}; answer: Record<string, any> };
}

/** What can be done. */
export interface Acts {
  "session": { asked: {}; body: SignIn; answer: SignedIn };
  "run/settle": { asked: { id: string | null }; body: Settle; answer: Acted };
  "run/resume": { asked: { id: string | null }; body: Resume; answer: Acted };
  "resume-all": { asked: {}; body: ResumeAll; answer: ResumedAll };
  "run/pause": { asked: { id: string | null }; body: Pause; answer: Acted };
  "run/cancel": { asked: { id: string | null }; body: Cancel; answer: Acted };
  "run/signal": { asked: { id: string | null }; body: Signal; answer: Acted };
  "run/answer": { asked: { id: string | null }; body: Answer; answer: Acted };
  "run/reject": { asked: { id: string | null }; body: Reject; answer: Acted };
  "run/approve": { asked: { id: string | null }; body: Approve; answer: Acted };
  "run/set-budget": { asked: { id: string | null }; body: SetBudget; answer: Acted };
  "run/rollback": { asked: { id: string | null }; body: Rollback; answer: Acted };
  "run/fork": { asked: { id: string | null }; body: Fork; answer: Forked };
  "schedule/pause": { asked: { name: string | null }; body: Nothing; answer: ScheduleTold };
  "schedule/resume": { asked: { name: string | null }; body: Nothing; answer: ScheduleTold };
  "queue/pause": { asked: { name: string | null }; body: Nothing; answer: QueueTold };
  "queue/resume": { asked: { name: string | null }; body: Nothing; answer: QueueTold };
  "queue": { asked: { name: string | null }; body: SetQueue; answer: QueueTold };
}

/** What can be listened to. */
export interface Streams {
  "run/history/stream": { id: string | null; after?: number | string | null };
  "changes": {};
}
