// A tool for the tests: a reader of Cyclone DDS for samples on a topic, with names of topic and type that others use. It ends when it
// has received as many samples as requested: DOMAIN TOPIC TYPE SAMPLES.
#include <dds/dds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perftest.h"

int main(int count, char** words) {
    if (count != 5) return 2;
    struct dds_topic_descriptor type;
    memcpy(&type, &K8sdds_Sample_desc, sizeof type);
    memcpy((void*)&type.m_typename, &words[3], sizeof words[3]);     // a constant member
    const dds_entity_t participant = dds_create_participant((dds_domainid_t)atoi(words[1]), NULL, NULL);
    const dds_entity_t topic = dds_create_topic(participant, &type, words[2], NULL, NULL);
    dds_qos_t* qos = dds_create_qos();
    dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(1));
    dds_qset_history(qos, DDS_HISTORY_KEEP_ALL, 0);
    const dds_entity_t reader = dds_create_reader(participant, topic, qos, NULL);
    dds_delete_qos(qos);
    if (reader < 0) {
        fprintf(stderr, "%s\n", dds_strretcode(-reader));
        return 1;
    }
    puts("ready");
    fflush(stdout);
    for (int remaining = atoi(words[4]); remaining > 0;) {
        void* sample = NULL;
        dds_sample_info_t info;
        const dds_return_t taken = dds_take(reader, &sample, &info, 1, 1);
        if (taken > 0) {
            remaining -= info.valid_data;
            dds_return_loan(reader, &sample, taken);
        } else {
            dds_sleepfor(DDS_MSECS(1));
        }
    }
    return dds_delete(participant) ? 1 : 0;
}
