// Forks the participant and holds it right before exec.
#pragma once

#include <sched.h>

#include <map>
#include <string>
#include <vector>

#include "files.h"

namespace k8sdds {

struct Launch {
    std::string path;  // of the program
    std::vector<std::string> argv;
    std::map<std::string, std::string> environment;
    cpu_set_t cpus;
    bool drop_capabilities = true;
    int out = -1, err = -1;
    int phase = -1;  // stays open across exec; -1: none
};

// Where the shell would find it. Throws Failure(kNotFound or kNotExecutable).
std::string find_program(const std::string& name, const std::string& path_variable);

// Throws Failure(kLacking) naming a CPU that this process may not run on.
void require_cpus(const std::string& option, const std::vector<int>& cpus);
cpu_set_t cpu_mask(const std::vector<int>& cpus);
cpu_set_t current_cpus();
void pin_to(const cpu_set_t& cpus);
std::vector<int> list_cpus(const cpu_set_t& cpus);

class Participant {
public:
    // Returns when everything is prepared and exec is all that is left to do.
    explicit Participant(const Launch& launch);

    void release();  // exec now
    pid_t pid() const { return pid_; }

    // Readable once it has left our program; after read_status(), exec_error() is "" or why exec failed.
    int status_fd() const { return status_.get(); }
    void read_status();
    const std::string& exec_error() const { return exec_error_; }

private:
    pid_t pid_ = -1;
    Fd status_, go_;
    std::string exec_error_;
};

}  // namespace k8sdds
