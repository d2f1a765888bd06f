/* Metal and the runtime of Objective-C, as far as native/metal.c and devices/metal.py send messages,
   of one pretended M1. Code is a shared library of the host.

   It is as strict as it can be: an unknown message, an object that has been released, what is
   answered outside of a pool, a pointer to memory that the encoder has not been told of, or messages
   in an order that Metal does not take end the process or the command buffer. Nothing runs before
   somebody waits, and the device's pointers are not the host's. */
#include "groups.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

typedef const std::string* Selector;
typedef std::map<std::string, void*> Methods;
enum : uint64_t { FAR = 1ull << 52, MOST_UNDER_WAY = 64, STATUS_COMPLETED = 4, STATUS_ERROR = 5 };

void die(const std::string& why) {
  fprintf(stderr, "emulated Metal: %s\n", why.c_str());
  abort();
}

void check(bool holds, const char* what) {
  if (!holds) die(what);
}

struct Object {
  const char* name;
  const Methods* methods;
  int references = 1;
  Object(const char* name, const Methods* methods) : name(name), methods(methods) {}
  virtual ~Object() {}
};

const Methods NONE;
std::recursive_mutex everything;
typedef std::lock_guard<std::recursive_mutex> Guard;
thread_local std::vector<std::vector<Object*>> pools;

Object* retain(Object* object) {
  Guard guard(everything);
  object->references++;
  return object;
}

/* What is released stays as a shell, so that messages to it are seen. */
void release(Object* object) {
  Guard guard(everything);
  if (--object->references) return;
  object->~Object();
  new (object) Object("released object", &NONE);
}

template <class T> T* autoreleased(T* object) {
  check(!pools.empty(), "an object is answered where there is no pool");
  pools.back().push_back(object);
  return object;
}

template <class F> void* of(F function) { return (void*)function; }

/* ---- strings, arrays, errors ------------------------------------------------------------------ */

extern const Methods string_methods, array_methods, error_methods;

struct String : Object {
  std::string text;
  explicit String(std::string text) : Object("string", &string_methods), text(std::move(text)) {}
};

const Methods string_methods = {
    {"UTF8String", of(+[](String* self, Selector) { return self->text.c_str(); })},
};

struct Array : Object {
  std::vector<Object*> items;
  explicit Array(std::vector<Object*> items) : Object("array", &array_methods), items(items) {}
};

const Methods array_methods = {
    {"count", of(+[](Array* self, Selector) { return (uint64_t)self->items.size(); })},
    {"objectAtIndex:", of(+[](Array* self, Selector, uint64_t k) { return self->items.at(k); })},
};

struct Error : Object {
  std::string text;
  explicit Error(std::string text) : Object("error", &error_methods), text(std::move(text)) {}
};

const Methods error_methods = {
    {"localizedDescription", of(+[](Error* self, Selector) {
       return autoreleased(new String(self->text));
     })},
};

/* ---- code ------------------------------------------------------------------------------------- */

extern const Methods options_methods, library_methods, function_methods, pipeline_methods;

struct Options : Object {
  bool is_exact = false;
  Options() : Object("compile options", &options_methods) {}
};

const Methods options_methods = {
    {"setMathMode:", of(+[](Options* self, Selector, int64_t mode) { self->is_exact = mode == 0; })},
};

struct Library : Object {
  void* image;
  explicit Library(void* image) : Object("library", &library_methods), image(image) {}
};

struct Function : Object {
  Kernel kernel;
  explicit Function(Kernel kernel) : Object("function", &function_methods), kernel(kernel) {}
};

struct Pipeline : Object {
  Kernel kernel;
  explicit Pipeline(Kernel kernel) : Object("pipeline", &pipeline_methods), kernel(kernel) {}
};

const Methods library_methods = {
    {"newFunctionWithName:", of(+[](Library* self, Selector, String* name) -> Function* {
       void* kernel = dlsym(self->image, (name->text + "_entry").c_str());
       return kernel ? new Function((Kernel)kernel) : nullptr;
     })},
};
const Methods function_methods = {};
const Methods pipeline_methods = {
    {"maxTotalThreadsPerThreadgroup", of(+[](Pipeline*, Selector) { return (uint64_t)MOST_ITEMS; })},
};

/* The image of source text, which threads and processes share, or what the compiler says. */
void* image_of(const std::string& source, std::string& log) {
  std::string key = std::string(getenv("EMULATED_VERSION")) + source;
  std::string base = std::string(getenv("EMULATED_METAL_IMAGES")) + "/" +
                     std::to_string(std::hash<std::string>()(key));
  std::string image = base + ".so";
  if (void* found = dlopen(image.c_str(), RTLD_NOW)) return found;
  std::string own = base + ".XXXXXX"; /* a folder: two threads may compile one text at a time */
  if (!mkdtemp(own.data())) return nullptr;
  std::ofstream(own + "/metal") << source;
  std::string command = std::string(getenv("EMULATED_METAL")) + " " + own + "/metal " + own +
                        "/so 2> " + own + "/log && mv " + own + "/so " + image;
  bool failed = system(command.c_str()) != 0;
  std::stringstream text;
  text << std::ifstream(own + "/log").rdbuf();
  log = text.str();
  std::filesystem::remove_all(own);
  return failed ? nullptr : dlopen(image.c_str(), RTLD_NOW);
}

/* ---- memory ----------------------------------------------------------------------------------- */

extern const Methods buffer_methods;

struct Buffer : Object {
  char* start;
  uint64_t bytes;
  explicit Buffer(uint64_t bytes) : Object("buffer", &buffer_methods), bytes(bytes) {
    if (allocate((void**)&start, bytes)) start = nullptr;
  }
  ~Buffer() { free(start); }
};

const Methods buffer_methods = {
    {"contents", of(+[](Buffer* self, Selector) { return self->start; })},
    {"gpuAddress", of(+[](Buffer* self, Selector) { return (uint64_t)self->start + FAR; })},
};

/* ---- the queue -------------------------------------------------------------------------------- */

extern const Methods queue_methods, commands_methods, encoder_methods;
struct Commands;

struct Queue : Object {
  std::vector<Commands*> under_way;
  Queue() : Object("queue", &queue_methods) {}
};

struct Dispatch {
  Kernel kernel;
  std::vector<uint64_t> given;
  std::vector<Buffer*> resident;
  unsigned groups, items;
};

struct Commands : Object {
  Queue* queue;
  std::vector<Dispatch> dispatches;
  std::vector<Buffer*> used;
  bool is_encoding = false;
  uint64_t status = 0;
  Error* error = nullptr;
  explicit Commands(Queue* queue) : Object("command buffer", &commands_methods), queue(queue) {}
  ~Commands() {
    check(!is_encoding, "a command buffer is gone before its encoder ended");
    if (error) release(error);
  }
  void fail(const std::string& why) {
    status = STATUS_ERROR;
    error = new Error(why);
  }
};

struct Encoder : Object {
  Commands* commands;
  Pipeline* pipeline = nullptr;
  std::vector<uint64_t> given;
  std::vector<Buffer*> resident;
  explicit Encoder(Commands* commands) : Object("encoder", &encoder_methods), commands(commands) {
    commands->is_encoding = true;
  }
};

typedef struct { uint64_t width, height, depth; } Size;

/* Whether all words that are the device's pointers could be made the host's. */
bool translate(Dispatch& dispatch) {
  for (uint64_t& word : dispatch.given) {
    if (word < FAR) continue;
    char* place = (char*)(word - FAR);
    bool found = false;
    for (Buffer* each : dispatch.resident)
      found |= each->start <= place && place <= each->start + each->bytes;
    if (!found) return false;
    word = (uint64_t)place;
  }
  return true;
}

void run(Commands* commands) {
  for (Dispatch& dispatch : commands->dispatches) {
    if (commands->status == STATUS_ERROR) break;
    void* where = dispatch.given.data();
    if (!translate(dispatch)) commands->fail("a pointer to memory that is not resident");
    else if (run_grid(dispatch.kernel, {dispatch.groups, 1, 1}, {dispatch.items, 1, 1}, &where))
      commands->fail("not all items of a group wait at the same barrier");
  }
  if (!commands->status) commands->status = STATUS_COMPLETED;
  for (Buffer* each : commands->used) release(each);
}

const Methods queue_methods = {
    {"commandBuffer", of(+[](Queue* self, Selector) { return autoreleased(new Commands(self)); })},
};

const Methods commands_methods = {
    {"computeCommandEncoder", of(+[](Commands* self, Selector) {
       check(!self->is_encoding, "a second encoder begins");
       return autoreleased(new Encoder(self));
     })},
    {"commit", of(+[](Commands* self, Selector) {
       Guard guard(everything);
       check(!self->is_encoding, "a command buffer is committed whose encoder has not ended");
       self->queue->under_way.push_back((Commands*)retain(self));
       check(self->queue->under_way.size() < MOST_UNDER_WAY, "a queue is full");
     })},
    {"waitUntilCompleted", of(+[](Commands* self, Selector) {
       Guard guard(everything);
       while (!self->status) {
         check(!self->queue->under_way.empty(), "somebody waits for what is not committed");
         Commands* next = self->queue->under_way.front();
         self->queue->under_way.erase(self->queue->under_way.begin());
         run(next);
         release(next);
       }
     })},
    {"status", of(+[](Commands* self, Selector) { return self->status; })},
    {"error", of(+[](Commands* self, Selector) { return self->error; })},
};

const Methods encoder_methods = {
    {"setComputePipelineState:",
     of(+[](Encoder* self, Selector, Pipeline* pipeline) { self->pipeline = pipeline; })},
    {"setBytes:length:atIndex:",
     of(+[](Encoder* self, Selector, const uint64_t* bytes, uint64_t length, uint64_t index) {
       check(length % 8 == 0 && length <= 4096 && !index, "bytes are not as they must be");
       self->given.assign(bytes, bytes + length / 8);
     })},
    {"useResource:usage:", of(+[](Encoder* self, Selector, Buffer* buffer, uint64_t usage) {
       check(usage == 3, "a resource is not read and written");
       self->resident.push_back(buffer);
       self->commands->used.push_back((Buffer*)retain(buffer));
     })},
    {"dispatchThreadgroups:threadsPerThreadgroup:",
     of(+[](Encoder* self, Selector, Size groups, Size items) {
       check(self->commands->is_encoding && self->pipeline, "a dispatch without a pipeline");
       check(groups.height == 1 && groups.depth == 1 && items.height == 1 && items.depth == 1,
             "a grid has more than one axis");
       check(groups.width && items.width && items.width <= MOST_ITEMS, "a group is too large");
       self->commands->dispatches.push_back({self->pipeline->kernel, self->given, self->resident,
                                             (unsigned)groups.width, (unsigned)items.width});
     })},
    {"endEncoding", of(+[](Encoder* self, Selector) {
       check(self->commands->is_encoding, "an encoder ends twice");
       self->commands->is_encoding = false;
     })},
};

/* ---- the device ------------------------------------------------------------------------------- */

const Methods device_methods = {
    {"name", of(+[](Object*, Selector) { return autoreleased(new String("emulated M1")); })},
    {"supportsFamily:", of(+[](Object*, Selector, int64_t family) { return family == 5001; })},
    {"maxThreadgroupMemoryLength", of(+[](Object*, Selector) { return (uint64_t)32768; })},
    {"newCommandQueue", of(+[](Object*, Selector) { return new Queue; })},
    {"newBufferWithLength:options:",
     of(+[](Object*, Selector, uint64_t bytes, uint64_t options) -> Buffer* {
       check(!options, "storage is not shared");
       Buffer* buffer = new Buffer(bytes);
       if (buffer->start) return buffer;
       release(buffer);
       return nullptr;
     })},
    {"newLibraryWithSource:options:error:",
     of(+[](Object*, Selector, String* source, Options* options, Error** error) -> Library* {
       check(options->is_exact, "code is compiled with fast math");
       std::string log;
       void* image = image_of(source->text, log);
       if (image) return new Library(image);
       *error = autoreleased(new Error(log));
       return nullptr;
     })},
    {"newComputePipelineStateWithFunction:error:",
     of(+[](Object*, Selector, Function* function, Error**) { return new Pipeline(function->kernel); })},
};
Object m1("device", &device_methods);

const Methods string_class_methods = {
    {"stringWithUTF8String:",
     of(+[](Object*, Selector, const char* text) { return autoreleased(new String(text)); })},
};
Object string_class("class NSString", &string_class_methods);
const Methods options_class_methods = {
    {"new", of(+[](Object*, Selector) { return new Options; })},
};
Object options_class("class MTLCompileOptions", &options_class_methods);

const Methods common_methods = {
    {"retain", of(+[](Object* self, Selector) { return retain(self); })},
    {"release", of(+[](Object* self, Selector) { release(self); })},
    {"respondsToSelector:", of(+[](Object* self, Selector, Selector which) {
       return self->methods->count(*which) != 0;
     })},
};

}  // namespace

/* ---- the runtime of Objective-C --------------------------------------------------------------- */

extern "C" {

__attribute__((visibility("hidden"))) void* emulated_method(Object* to, Selector selector) {
  auto own = to->methods->find(*selector);
  if (own != to->methods->end()) return own->second;
  auto common = common_methods.find(*selector);
  if (to->methods == &NONE || common == common_methods.end())
    die(std::string("a ") + to->name + " does not understand " + *selector);
  return common->second;
}

/* Finds the method and goes on there, with all arguments where they are; nothing answers 0. */
asm(R"(
.globl objc_msgSend
.type objc_msgSend, @function
objc_msgSend:
  test %rdi, %rdi
  je 1f
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  sub $8, %rsp
  call emulated_method
  add $8, %rsp
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  jmp *%rax
1:
  xor %eax, %eax
  ret
)");

Selector sel_registerName(const char* name) {
  static std::map<std::string, std::string> names;
  Guard guard(everything);
  return &names.emplace(name, name).first->second;
}

Object* objc_getClass(const char* name) {
  if (!strcmp(name, "NSString")) return &string_class;
  return strcmp(name, "MTLCompileOptions") ? nullptr : &options_class;
}

void* objc_autoreleasePoolPush() {
  pools.emplace_back();
  return (void*)pools.size();
}

void objc_autoreleasePoolPop(void* pool) {
  check(pool == (void*)pools.size(), "pools do not end as they began");
  std::vector<Object*> left = pools.back();
  pools.pop_back();
  for (Object* object : left) release(object);
}

Object* MTLCopyAllDevices() { return new Array({&m1}); }
}
