# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class DB < Queries
        # Sequel over one of its adapters.
        class SequelClient
          ADAPTERS = {"sequel_heddle" => "heddle-mysql", "sequel_mysql2" => "mysql2", "sequel_trilogy" => "trilogy"}
            .freeze

          # @param kind [String] one of the keys of ADAPTERS
          def initialize(kind, url)
            @db = Sequel.connect(url.sub(/\Amysql:/, "#{ADAPTERS.fetch(kind)}:"), max_connections: 1)
          end

          def query(sql) = @db.run(sql)

          def new_sql(number) = @db.fetch("select #{number} as a, ? as b", number).first[:b]

          def kept(number)
            @kept ||= @db["select 1 as a, ? as b", :$number].prepare(:select, :kept)
            @kept.call(number: number)[0][:b]
          end

          # @return [Array(Integer, Integer, Class)] how many, the last one's id, and the class of the first one's time
          def rows(sql)
            all = @db.fetch(sql).all
            [all.size, all[999][:id], all[0][:at].class]
          end
        end
        private_constant :SequelClient
      end
    end
  end
end
