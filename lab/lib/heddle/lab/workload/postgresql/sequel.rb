# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class PostgreSQL < Queries
        # Sequel over pg.
        class SequelClient
          def initialize(url, operation)
            @url = url.sub(/\Apostgresql:/, "#{adapter}:")
            require "heddle/sequel" if operation == "pool"
            @db = connect(1) unless operation == "pool"
          end

          def new_sql(sql, number) = @db.fetch(sql.sub("$1", "?"), number).first[:b]

          def kept(sql, number)
            @kept ||= @db[sql.sub("$1", "?"), :$number].prepare(:select, :kept)
            @kept.call(number: number)[0][:b]
          end

          def rows(sql)
            all = @db.fetch(sql).all
            [all.size, all[999][:id], all[0][:at]]
          end

          def pool(size)
            db = connect(size)
            ->(number) { db.fetch("select ?::int as b", number).first[:b] }
          end

          private

          def adapter = "postgres"

          def connect(size) = Sequel.connect(@url, max_connections: size, pool_timeout: 30)
        end

        # Sequel over Heddle.
        class SequelHeddleClient < SequelClient
          private

          def adapter = "heddle-postgresql"
        end
        private_constant :SequelClient, :SequelHeddleClient
      end
    end
  end
end
