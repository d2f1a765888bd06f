"""pjrt_plugin"""
