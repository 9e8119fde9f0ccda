// Forks the participant and holds it immediately before exec.
#pragma once

#include <sched.h>

#include <map>
#include <string>
#include <vector>

#include "support.h"

namespace k8sdds {

// What the participant is started with.
struct Launch {
    std::string path;  // of the executable
    std::vector<std::string> argv;
    std::map<std::string, std::string> environment;
    cpu_set_t cpus;
    bool drop_capabilities = true;
    int realtime_priority = 0;  // of SCHED_FIFO; 0: the normal scheduler
    bool lock_memory = false;
    int out = -1, err = -1;
    int phase = -1;  // inherited by the participant; -1: none
};

// Returns the path of a program, looked up like a shell does. Throws Failure(kNotFound or kNotExecutable).
std::string find_program(const std::string& name, const std::string& path_variable);

// Throws Failure(kPrerequisite) if this process is not allowed to run on one of the CPUs.
void require_cpus(const std::string& option, const std::vector<int>& cpus);
cpu_set_t cpu_mask(const std::vector<int>& cpus);
cpu_set_t current_cpus();
void pin_to(const cpu_set_t& cpus);
std::vector<int> list_cpus(const cpu_set_t& cpus);

// The child process of the participant. Destroying it does not end the process.
class Participant {
public:
    // Returns when the child process is completely prepared and waits for release().
    explicit Participant(const Launch& launch);

    void release();  // lets the child process call exec
    pid_t pid() const { return pid_; }

    // Becomes readable when exec has succeeded or failed. After read_status(), exec_error() is the reason of a
    // failed exec, or empty.
    int status_fd() const { return status_.get(); }
    void read_status();
    const std::string& exec_error() const { return exec_error_; }

private:
    pid_t pid_ = -1;
    Fd status_, go_;
    std::string exec_error_;
};

}  // namespace k8sdds
