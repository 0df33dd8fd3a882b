SELECT key_moment(%(organization_id)s)
