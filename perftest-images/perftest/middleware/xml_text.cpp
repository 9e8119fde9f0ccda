#include "xml_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <tinyxml2.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace k8sdds {
namespace {

constexpr size_t max_bytes = 64 << 10;

bool declares(const tinyxml2::XMLNode* node) {
    for (auto child = node->FirstChild(); child; child = child->NextSibling())
        if (child->ToUnknown() || declares(child)) return true;
    return false;
}

std::string at_line(int line) { return line ? ":" + std::to_string(line) + ": " : ": "; }

// Returns why the file cannot be read; empty if it was.
std::string read_text(int fd, std::string& text) {
    struct stat status {};
    if (fstat(fd, &status) != 0) return std::strerror(errno);
    if (!S_ISREG(status.st_mode)) return "not a regular file; give an XML file";
    text.resize(max_bytes + 1);
    size_t length = 0;
    while (length < text.size()) {
        const ssize_t n = read(fd, &text[length], text.size() - length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return std::strerror(errno);
        if (n == 0) break;
        length += static_cast<size_t>(n);
    }
    text.resize(length);
    return length > max_bytes ? "is longer than " + std::to_string(max_bytes) + " bytes; shorten it" : "";
}

}  // namespace

std::string parse_xml(const std::string& text, tinyxml2::XMLDocument& document) {
    if (document.Parse(text.data(), text.size()) != tinyxml2::XML_SUCCESS)
        return at_line(document.ErrorLineNum()) + "not well-formed XML; correct it";
    const tinyxml2::XMLElement* root = document.RootElement();
    if (!root) return ": contains no element; give an XML file with a root element";
    if (const auto* second = root->NextSiblingElement())
        return at_line(second->GetLineNum()) + "a second root element; remove it";
    if (declares(&document)) return at_line(root->GetLineNum()) + "the file declares a document type; remove it";
    return "";
}

std::string read_xml(const std::string& path, tinyxml2::XMLDocument& document, std::string& text) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);   // a FIFO would block
    if (fd < 0) return std::string(": ") + std::strerror(errno) + "; give an XML file";
    const std::string unreadable = read_text(fd, text);
    close(fd);
    return unreadable.empty() ? parse_xml(text, document) : ": " + unreadable;
}

}  // namespace k8sdds
