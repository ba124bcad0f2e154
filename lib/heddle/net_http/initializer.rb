# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP.new`: the library merges two Hashes of defaults and sets some fifteen variables by name, which is a
    # fifth of the CPU time of a request on a new connection. The method made here sets the same variables to the same
    # values, in the same order, by assignments. It takes 1.3 µs instead of 3.0 on Ruby 3.1, and 2.7 instead of 8.5 on
    # 4.0, of some 22 µs for a session on a persistent connection. C code has no caches for the forty variables.
    module Initializer
      class << self
        # @return [Module] with the method; without it where the objects of the installed version have a variable whose
        #   value is unknown here
        def methods_for(http)
          source = source_for(http)
          Module.new { class_eval(source, __FILE__, __LINE__) if source }
        end

        private

        def source_for(http)
          return unless http.instance_method(:initialize).parameters == [%i[req address], %i[opt port]]
          return if configurable?(http) && http.default_configuration

          object = http.allocate.tap { |made| made.send(:initialize, "host", 1) } # `new` would set a proxy, too
          values = object.instance_variables.map do |name|
            [name, literal(http, name, object.instance_variable_get(name))]
          end
          text(http, values) unless values.any? { |_, value| value.nil? }
        end

        def configurable?(http) = http.respond_to?(:default_configuration)

        def text(http, values)
          wanted = "Library.http_of(self, :initializer)"
          wanted += " && !self.class.default_configuration" if configurable?(http)
          <<~RUBY
            def initialize(address, port = nil)
              return initialize_without_heddle(address, port) unless #{wanted}

              #{values.map { |name, value| "#{name} = #{value}" }.join("; ")}
            end
          RUBY
        end

        def literal(http, name, value)
          case name
          when :@address then "address"
          when :@port then "port || ::#{http.name}.default_port"
          when :@curr_http_version then "::#{http.name}::HTTPVersion" if value.equal?(http::HTTPVersion)
          else
            value.inspect if value.nil? || value == true || value == false || value.is_a?(Integer)
          end
        end
      end
    end
    private_constant :Initializer
  end
end
