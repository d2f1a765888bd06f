/* hiprtc: `image.py` compiles, in a process of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <sstream>
#include <string>

namespace {

enum Status { SUCCESS = 0, COMPILATION = 6 };

struct Program {
  std::string source, image, log;
};

std::string content(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

extern "C" {

int hiprtcVersion(int* major, int* minor) {
  *major = 7;
  *minor = atoi(getenv("EMULATED_VERSION"));
  return SUCCESS;
}

int hiprtcCreateProgram(Program** program, const char* source, const char*, int, const char**,
                        const char**) {
  *program = new Program{source};
  return SUCCESS;
}

int hiprtcCompileProgram(Program* program, int, const char**) {
  char folder[] = "/tmp/emulated_hiprtc_XXXXXX";
  if (!mkdtemp(folder)) return COMPILATION;
  std::string base = folder;
  std::ofstream(base + "/source") << program->source;
  std::string command = std::string(getenv("EMULATED_HIPRTC")) + " " + base + "/source " + base +
                        "/image 2> " + base + "/log";
  bool failed = system(command.c_str());
  program->image = content(base + "/image");
  program->log = content(base + "/log");
  failed |= system(("rm -r " + base).c_str()) != 0;
  return failed ? COMPILATION : SUCCESS;
}

int hiprtcGetProgramLogSize(const Program* program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return SUCCESS;
}

int hiprtcGetProgramLog(const Program* program, char* log) {
  memcpy(log, program->log.c_str(), program->log.size() + 1);
  return SUCCESS;
}

int hiprtcGetCodeSize(const Program* program, size_t* bytes) {
  *bytes = program->image.size();
  return SUCCESS;
}

int hiprtcGetCode(const Program* program, char* code) {
  memcpy(code, program->image.data(), program->image.size());
  return SUCCESS;
}

int hiprtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return SUCCESS;
}
}
