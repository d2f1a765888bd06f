// What follows PLAN on WebGPU; PLAN, SOURCE and WEIGHTS (the name of the file of weights) stand above.
//
//   import { run, plan } from "./model.js";
//   const [y] = await run(x);              // typed arrays of plan.inputs, in and out
//
// Types: f32, i32, u32, i8 .. u16 are typed arrays of their names, i1 is a Uint8Array of 0 and 1, bf16
// and f16 are a Uint16Array of their bits, i64 and ui64 a BigInt64Array and a BigUint64Array.

export const plan = PLAN;

const SLOT = 512; // bytes: where the arrays of a dispatch begin
const SLOTS = 128; // of a buffer of them
const GROUPS = 65535; // of a dispatch along one axis
const TYPES = {
  i1: Uint8Array, i8: Int8Array, i16: Int16Array, i32: Int32Array,
  ui8: Uint8Array, ui16: Uint16Array, ui32: Uint32Array,
  bf16: Uint16Array, f16: Uint16Array, f32: Float32Array,
  i64: BigInt64Array, ui64: BigUint64Array,
};

const wordsOf = (entry) => sizeOf(entry) * Math.ceil(TYPES[entry.type].BYTES_PER_ELEMENT / 4);
const sizeOf = (entry) => entry.shape.reduce((product, extent) => product * extent, 1);

/** The words of an array: an element of a narrow type in each. */
function wordsFrom(array, entry) {
  const Type = TYPES[entry.type], size = sizeOf(entry);
  if (!(array instanceof Type) || array.length !== size) {
    throw new TypeError(
      `${entry.type}[${entry.shape}] is a ${Type.name} of ${size} elements, not ` +
        `${array?.constructor?.name} of ${array?.length}`,
    );
  }
  if (Type.BYTES_PER_ELEMENT >= 4) {
    return new Uint32Array(array.buffer, array.byteOffset, wordsOf(entry));
  }
  return new Uint32Array(Int32Array.from(array).buffer);
}

function arrayFrom(words, entry) {
  const Type = TYPES[entry.type];
  return Type.BYTES_PER_ELEMENT >= 4 ? new Type(words.buffer) : Type.from(words);
}

/** Whether the device's fma is rounded once: some are not, and sines and the like need it. */
async function roundsOnce(device) {
  const code = `@group(0) @binding(0) var<storage, read_write> w: array<f32>;
    @compute @workgroup_size(1) fn main() { w[1] = fma(w[0], w[0], w[1]); }`;
  const module = device.createShaderModule({ code });
  const pipeline = await device.createComputePipelineAsync({
    layout: "auto", compute: { module, entryPoint: "main" },
  });
  const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const buffer = device.createBuffer({ size: 8, usage: STORAGE | COPY_SRC | COPY_DST });
  const x = 1 + 2 ** -12;
  device.queue.writeBuffer(buffer, 0, new Float32Array([x, -Math.fround(x * x)]));
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer } }],
  });
  const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(1);
  pass.end();
  const staging = device.createBuffer({ size: 8, usage: COPY_DST | MAP_READ });
  encoder.copyBufferToBuffer(buffer, 0, staging, 0, 8);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  return new Float32Array(staging.getMappedRange())[1] === x * x - Math.fround(x * x);
}

class Program {
  slots = new Map();
  groups = [];
  pipelines = new Map();
  encoder = null;

  /** A device, the weights on it, and a pipeline of each kernel. */
  static async open(weights) {
    const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
    if (!adapter) throw new Error("there is no WebGPU here: see https://webgpu.io/");
    const size = 4 * plan.words;
    const most = Math.min(
      adapter.limits.maxStorageBufferBindingSize, adapter.limits.maxBufferSize,
    );
    if (size > most) {
      throw new Error(`${plan.name} needs ${size} bytes of memory; this device takes ${most} at once`);
    }
    const limits = adapter.limits;
    const device = await adapter.requestDevice({
      requiredLimits: {
        maxStorageBufferBindingSize: limits.maxStorageBufferBindingSize,
        maxBufferSize: limits.maxBufferSize,
      },
    });
    const program = new Program();
    program.device = device;
    program.name = adapter.info?.description || adapter.info?.device || "WebGPU";
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    program.memory = device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
    program.layout = device.createBindGroupLayout({
      entries: [
        { binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: "storage" } },
        {
          binding: 1, visibility: GPUShaderStage.COMPUTE,
          buffer: { type: "uniform", hasDynamicOffset: true },
        },
      ],
    });
    const exact = await roundsOnce(device);
    const module = device.createShaderModule({ code: SOURCE });
    const layout = device.createPipelineLayout({ bindGroupLayouts: [program.layout] });
    const constants = { exact_fma: exact ? 1 : 0 };
    await Promise.all(plan.symbols.map(async (symbol) => {
      const compute = { module, entryPoint: symbol, constants };
      program.pipelines.set(symbol, await device.createComputePipelineAsync({ layout, compute }));
    }));
    const raw = plan.constants.length ? await weights() : null;
    for (const entry of plan.constants) {
      program.write(entry, new TYPES[entry.type](raw, entry.byte, sizeOf(entry)));
    }
    return program;
  }

  async run(inputs) {
    if (inputs.length !== plan.inputs.length) {
      throw new TypeError(`${plan.name} takes ${plan.inputs.length} arrays, not ${inputs.length}`);
    }
    plan.inputs.forEach((entry, k) => this.write(entry, inputs[k]));
    this.starts = [...plan.buffers];
    await this.block(plan.body);
    const places = plan.outputs.map((entry) => [entry.at, wordsOf(entry)]);
    const found = await this.read(plan.loops ? [...places, [0, 1]] : places);
    if (plan.loops && found.pop()[0]) {
      this.device.queue.writeBuffer(this.memory, 0, new Uint32Array(1));
      throw new Error(`${plan.name}: ${this.name} ended a loop before it was done`);
    }
    return plan.outputs.map((entry, k) => arrayFrom(found[k], entry));
  }

  write(entry, array) {
    if (sizeOf(entry)) this.device.queue.writeBuffer(this.memory, 4 * entry.at, wordsFrom(array, entry));
  }

  /** Ranges of memory, when all that was asked for is done. */
  async read(places) {
    const { COPY_DST, MAP_READ } = GPUBufferUsage;
    const total = places.reduce((sum, [, words]) => sum + words, 0);
    const staging = this.device.createBuffer({
      size: 4 * Math.max(1, total), usage: COPY_DST | MAP_READ,
    });
    this.pass?.end();
    const encoder = this.encoder ?? this.device.createCommandEncoder();
    this.encoder = this.pass = null;
    let at = 0;
    for (const [start, words] of places) {
      if (words) encoder.copyBufferToBuffer(this.memory, 4 * start, staging, 4 * at, 4 * words);
      at += words;
    }
    this.device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    const all = new Uint32Array(staging.getMappedRange().slice(0));
    staging.destroy();
    at = 0;
    return places.map(([, words]) => all.slice(at, (at += words)));
  }

  async word(buffer) {
    const [[word]] = await this.read([[this.starts[buffer], 1]]);
    return word | 0;
  }

  async block(block) {
    for (const [kind, ...given] of block) {
      const waits = this[`do_${kind}`](...given);
      if (waits) await waits;
    }
  }

  // --- what a plan consists of

  dispatch(symbol, groups, starts) {
    if (!this.encoder) {
      this.encoder = this.device.createCommandEncoder();
      this.pass = this.encoder.beginComputePass();
    }
    const [group, offset] = this.slot(starts);
    this.pass.setPipeline(this.pipelines.get(symbol));
    this.pass.setBindGroup(0, group, [offset]);
    this.pass.dispatchWorkgroups(Math.min(groups, GROUPS), Math.ceil(groups / GROUPS));
  }

  do_run(symbol, groups, places) {
    this.dispatch(symbol, groups, places.map(([buffer, offset]) => this.starts[buffer] + offset));
  }

  do_copy(source, target, words) {
    const [from, to] = [this.starts[source], this.starts[target]];
    if (words && from !== to) this.dispatch("copy_words", Math.ceil(words / 256), [from, to, words]);
  }

  do_swap(one, other) {
    [this.starts[one], this.starts[other]] = [this.starts[other], this.starts[one]];
  }

  async do_while(condition, flag, body, count) {
    if (count !== null) {
      for (let k = 0; k < count; k++) await this.block(body);
      return;
    }
    await this.block(condition);
    while (await this.word(flag)) {
      await this.block(body);
      await this.block(condition);
    }
  }

  async do_switch(selector, blocks) {
    const chosen = await this.word(selector);
    await this.block(blocks[chosen >= 0 && chosen < blocks.length ? chosen : blocks.length - 1]);
  }

  /** Where the device reads them; written once, as commands that wait may name it. */
  slot(starts) {
    const key = starts.join();
    let found = this.slots.get(key);
    if (!found) {
      const place = this.slots.size % SLOTS;
      if (!place) this.groups.push(this.moreSlots());
      const { buffer, group } = this.groups.at(-1);
      const words = new Int32Array(SLOT / 4); // all of it: kernels rely on the last zero
      words.set(starts);
      this.device.queue.writeBuffer(buffer, place * SLOT, words);
      this.slots.set(key, (found = [group, place * SLOT]));
    }
    return found;
  }

  moreSlots() {
    const { UNIFORM, COPY_DST } = GPUBufferUsage;
    const buffer = this.device.createBuffer({ size: SLOT * SLOTS, usage: UNIFORM | COPY_DST });
    const group = this.device.createBindGroup({
      layout: this.layout,
      entries: [
        { binding: 0, resource: { buffer: this.memory } },
        { binding: 1, resource: { buffer, size: SLOT } },
      ],
    });
    return { buffer, group };
  }
}

let opened, last = Promise.resolve();

/** The device's name, once the program and its weights are on it; `run` does this by itself. */
export async function load() {
  opened ??= Program.open(async () => {
    const answer = await fetch(new URL(WEIGHTS, import.meta.url));
    if (!answer.ok) throw new Error(`${WEIGHTS}: ${answer.status}`);
    return answer.arrayBuffer();
  });
  return (await opened).name;
}

/** The outputs for these inputs, as typed arrays. Calls wait for each other. */
export async function run(...inputs) {
  await load();
  const program = await opened;
  const mine = last.then(() => program.run(inputs));
  last = mine.catch(() => {});
  return mine;
}
