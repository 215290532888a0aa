/* The part of `rcclx info` about networks and plug-ins. Plug-ins are loaded and tried, as init would. */
#include "tool_network.h"

#include "algo/tuner.h"
#include "base/log.h"
#include "base/option.h"
#include "transport/net.h"
#include "transport/plugin/plugin.h"

#include <stdio.h>

static const rcclx_network *in_force(void)
{
    const rcclx_network *net = NULL;

    return rcclx_network_find(rcclx_option_str(RCCLX_OPT_NET), 0, &net) == RCCLX_OK ? net : NULL;
}

void tool_network_print(void)
{
    const rcclx_network *net = in_force();
    char text[512];

    printf("\nnetworks between machines (NCCL_NET=name)\n");
    for (int i = 0; rcclx_plugin_network_tell(i, text, sizeof(text)); i++)
        printf("  plug-in    %s\n", text);
    for (int i = 0; rcclx_networks[i]; i++)
        printf("  %-10s %s\n", rcclx_networks[i]->name, rcclx_networks[i]->about);
    printf("  in force:  %s\n", net ? net->name : rcclx_last_error());
    const bool tuned = rcclx_tuner_tell(text, sizeof(text));
    printf("\ntuner (NCCL_TUNER_PLUGIN=name)\n  %s%s\n", tuned || *text ? "plug-in    " : "none", text);
}

void tool_network_json(rcclx_json *j)
{
    const rcclx_network *net = in_force();
    char text[512];

    rcclx_json_string(j, "network", net ? net->name : NULL);
    rcclx_json_array_open(j, "networks");
    for (int i = 0; rcclx_networks[i]; i++) {
        rcclx_json_object_open(j, NULL);
        rcclx_json_string(j, "name", rcclx_networks[i]->name);
        rcclx_json_string(j, "about", rcclx_networks[i]->about);
        rcclx_json_object_close(j);
    }
    rcclx_json_array_close(j);
    rcclx_json_array_open(j, "network_plugins");
    for (int i = 0; rcclx_plugin_network_tell(i, text, sizeof(text)); i++)
        rcclx_json_string(j, NULL, text);
    rcclx_json_array_close(j);
    rcclx_json_string(j, "tuner", rcclx_tuner_tell(text, sizeof(text)) ? text : NULL);
}
