# frozen_string_literal: true

module Heddle
  class Memcached
    class DalliCompatible
      # Makes the same spans as dalli if OpenTelemetry is loaded, with dalli's names and attributes. A client that was
      # made before OpenTelemetry was loaded makes no spans.
      #
      # @api private
      module Tracing
        SYSTEM = {"db.system.name" => "memcached"}.freeze
        # The methods for one key, and dalli's names for their spans.
        OPERATIONS =
          {get: "get", gat: "gat", touch: "touch", set: "set", set_cas: "set", add: "add", replace: "replace",
           replace_cas: "replace", delete_cas: "delete", append: "append", prepend: "prepend", incr: "incr",
           decr: "decr", get_with_metadata: "get_with_metadata", fetch_with_lock: "fetch_with_lock"}.freeze
        private_constant :SYSTEM, :OPERATIONS

        # @return [#in_span, nil]
        def self.tracer
          ::OpenTelemetry.tracer_provider.tracer("dalli", VERSION) if defined?(::OpenTelemetry)
        end

        # @param client [DalliCompatible]
        def self.start(client, statement:, peer:)
          tracer = self.tracer or return
          client.instance_variable_set(:@tracing, [tracer, statement&.to_sym, peer])
          client.extend(self)
        end

        OPERATIONS.each do |method, operation|
          define_method(method) do |key, *arguments, **options, &block|
            span(operation, key) { super(key, *arguments, **options, &block) }
          end
        end

        # The span does not include the block.
        def get_cas(key, options = nil)
          pair = span("cas", key) { super(key, options, &nil) }
          block_given? ? yield(*pair) : pair
        end

        def get_multi(*keys, req_options: nil, &block)
          asked = keys.flatten.compact
          return super if asked.empty?

          found = spans("get_multi", asked) do |span|
            super(*keys, req_options: req_options, &nil).tap do |hits|
              span&.add_attributes("db.memcached.hit_count" => hits.size,
                "db.memcached.miss_count" => asked.size - hits.size)
            end
          end
          block ? found.each(&block) && nil : found
        end

        def get_multi_with_metadata(*keys, req_options: nil, &block)
          found = spans("get_multi_with_metadata", keys.flatten.compact) do
            super(*keys, req_options: req_options, &nil)
          end
          block ? found.each(&block) && nil : found
        end

        def set_multi(pairs, ...)
          spans("set_multi", pairs.keys) { super }
        end

        def delete_multi(keys, ...)
          spans("delete_multi", keys) { super }
        end

        private

        def span(operation, key, &block)
          wire = @cache.send(:wire_key, key)
          address = @cache.send(:server_for, wire).address
          attributes = {"server.address" => address.path || address.host}
          attributes["server.port"] = address.port unless address.path
          in_span(operation, attributes, [wire], &block)
        end

        def spans(operation, keys, &block)
          in_span(operation, {"db.memcached.key_count" => keys.size}, keys, &block)
        end

        def in_span(operation, attributes, keys, &block)
          tracer, statement, peer = @tracing
          attributes = {**SYSTEM, "db.operation.name" => operation, **attributes}
          attributes["peer.service"] = peer if peer
          case statement
          when :include then attributes["db.query.text"] = "#{operation} #{keys.join(" ")}"
          when :obfuscate then attributes["db.query.text"] = "#{operation} ?"
          end
          tracer.in_span(operation, attributes: attributes, kind: :client, &block)
        end
      end
    end
  end
end
