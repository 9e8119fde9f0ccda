// Random numbers that depend on nothing but the seed, the link, the direction, the purpose and the number of the packet.
#pragma once

#include <cstdint>
#include <string>

namespace k8sdds {

enum class Purpose : std::uint64_t { kLoss = 1, kLossState, kDelay, kReorder, kDuplicate, kOutage };

// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) by position: the n-th
// number of a stream is computed without those before it.
class Stream {
public:
    Stream(std::uint64_t seed, const std::string& link, bool up, Purpose purpose) {
        std::uint64_t key = mix(seed + kGolden);
        for (const char c : link) key = mix(key ^ static_cast<unsigned char>(c));
        key_ = mix(mix(key ^ (up ? 1 : 2)) ^ static_cast<std::uint64_t>(purpose));
    }

    // Returns the n-th number, in the open interval from 0 to 1.
    double at(std::uint64_t n) const {
        return (static_cast<double>(mix(key_ + (n + 1) * kGolden) >> 11) + 0.5) * 0x1p-53;
    }

private:
    static constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

    static std::uint64_t mix(std::uint64_t x) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
    }

    std::uint64_t key_;
};

}  // namespace k8sdds
